// How much the steps before encryption make of a sample, which no server decides without bounds.

import { sizeOf, type Tensor } from "./arrays.js";
import type { InputStep, Run } from "./columns.js";
import { ShapeError } from "./errors.js";
import { demand } from "./fields.js";
import { MOST_COLUMNS, MOST_COLUMNS_OF_ALL_STEPS, MOST_NUMBERS_AT_ONCE, MOST_STEPS } from "./limits.js";

/** Numbers that each step makes of a sample, nested steps included: seen when they are tried on no samples. */
export class StepSizes {
  readonly #columns: number[] = [];

  /** The same step; RangeError for one too many. ShapeError when it makes too many columns. */
  measured<S extends InputStep>(step: S): S {
    const place = this.#columns.push(0) - 1;
    demand(this.#columns.length <= MOST_STEPS, `at most ${MOST_STEPS} steps, nested ones included`);
    const run: Run = (x, report) => {
      const made = step.run(x, report);
      if (made.shape[0] === 0) this.#note(place, made);
      return made;
    };
    return { ...step, run };
  }

  #note(place: number, made: Tensor): void {
    const columns = sizeOf(made.shape.slice(1));
    this.#columns[place] = columns;
    if (columns > MOST_COLUMNS || this.#columns.reduce((sum, each) => sum + each, 0) > MOST_COLUMNS_OF_ALL_STEPS)
      throw new ShapeError(
        `input: expected steps that make at most ${MOST_COLUMNS} columns each and ${MOST_COLUMNS_OF_ALL_STEPS} together`,
      );
  }

  /** Before the steps run on samples [samples, ..]: ShapeError where they make far more numbers of them than there are. */
  check({ shape: [samples = 0, ...sample] }: Pick<Tensor, "shape">): void {
    const widest = this.#columns.reduce((most, each) => Math.max(most, each), 0);
    const most = Math.floor(MOST_NUMBERS_AT_ONCE / Math.max(1, widest));
    if (widest > sizeOf(sample) && samples > most)
      throw new ShapeError(
        `input: its steps make ${widest} numbers of a sample, which is done for at most ${most} samples at once; got ${samples}`,
      );
  }
}
