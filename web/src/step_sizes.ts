// How much the steps before encryption make of a sample, which no server decides without bounds: models/program/specification_limits.py.

import { sizeOf, type Tensor } from "./arrays.js";
import type { Given, InputStep } from "./columns.js";
import { ShapeError } from "./errors.js";
import { demand } from "./fields.js";
import {
  MOST_COLUMNS,
  MOST_NUMBERS_AT_ONCE,
  MOST_NUMBERS_OF_A_SAMPLE,
  MOST_PIECE_CHARACTERS,
  MOST_STEPS,
  MOST_WORK,
  NUMBERS_FOR_A_NUMBER,
  PIECE_CHARACTERS_FOR_A_CHARACTER,
  WORK_FOR_A_NUMBER,
} from "./limits.js";

/** Known after the steps were tried on no samples. */
export class StepSizes {
  readonly #held = new Map<InputStep, number>(); // numbers of a sample
  readonly #work = new Map<InputStep, number>();
  #steps = 0;

  /** The same step. RangeError: it is one too many. */
  counted<S extends InputStep>(step: S): S {
    demand(++this.#steps <= MOST_STEPS, `at most ${MOST_STEPS} steps, those within steps included`);
    return step;
  }

  /** What the step made of x, whose sizes are noted if there are no samples; ShapeError for too large a table. */
  noted(step: InputStep, x: Given, made: Tensor): Tensor {
    if (made.shape[0] !== 0) return made;
    const numbers = sizeOf(made.shape.slice(1));
    const { shape } = x as Partial<Tensor>;
    const held = (Array.isArray(shape) ? sizeOf(shape.slice(1)) : 0) + 2 * numbers;
    if (numbers > MOST_COLUMNS || held > MOST_NUMBERS_OF_A_SAMPLE)
      throw new ShapeError(`input: expected steps that make at most ${MOST_COLUMNS} columns`);
    this.#held.set(step, held);
    this.#work.set(step, numbers * (step.rounds ?? 1));
    return made;
  }

  /** ShapeError for so many samples, of so many numbers together, of which the steps would make too much. */
  check([samples, numbers]: Extent): void {
    const widest = [...this.#held.values()].reduce((most, each) => Math.max(most, each), 0);
    if (samples * widest > Math.max(MOST_NUMBERS_AT_ONCE, NUMBERS_FOR_A_NUMBER * numbers))
      throw tooMuch(`make tables of ${widest} numbers`, samples, MOST_NUMBERS_AT_ONCE / widest);
    const work = [...this.#work.values()].reduce((sum, each) => sum + each, 0);
    if (samples * work > Math.max(MOST_WORK, WORK_FOR_A_NUMBER * numbers))
      throw tooMuch(`compute ${work} numbers`, samples, MOST_WORK / work);
  }
}

function tooMuch(what: string, samples: number, most: number): ShapeError {
  return new ShapeError(
    `input: the steps of this model ${what} of each sample, too much for ${samples} samples at once; ` +
      `score at most ${Math.max(1, Math.floor(most))} together`,
  );
}

/** ShapeError for texts that make too many pieces, of which there are so many characters for each of a text's. */
export function checkPieces(texts: readonly string[], pieceCharacters: number): void {
  const characters = texts.reduce((sum, text) => sum + text.length, 0);
  if (characters * pieceCharacters > Math.max(MOST_PIECE_CHARACTERS, PIECE_CHARACTERS_FOR_A_CHARACTER * characters))
    throw new ShapeError(
      `input: this model takes ${pieceCharacters} characters of pieces for each one of a text, too much for texts of ${characters} characters at once; ` +
        "score fewer or shorter ones together",
    );
}

/** Samples, and the numbers of all of them. */
export type Extent = readonly [number, number];

/** `several`: samples are arrays by name, or a list of them. */
export function extentOf(x: unknown, several: boolean): Extent {
  if (typeof x !== "object" || x === null) return [1, 1];
  if (several) {
    const extents = Object.values(x).map((each) => extentOf(each, false));
    return [extents.reduce((most, [count]) => Math.max(most, count), 0), extents.reduce((sum, [, numbers]) => sum + numbers, 0)];
  }
  const shape: number[] = [];
  const { shape: stated } = x as Partial<Tensor>;
  if (Array.isArray(stated)) shape.push(...stated);
  else
    for (let level: unknown = x; typeof level === "object" && level !== null && "length" in level && shape.length < MOST_AXES;) {
      shape.push(Number(level.length));
      level = (level as unknown[])[0];
    }
  return [shape[0] ?? 0, sizeOf(shape)];
}

const MOST_AXES = 32;
