// What steps on columns have in common.

import { made, mapped, remainder, type Samples, sizeOf, table, type Tensor, tensor } from "./arrays.js";
import { ShapeError } from "./errors.js";
import type { RangeReport } from "./range_report.js";
import type { Unfit } from "./unfit.js";

export { MOST_COLUMNS } from "./limits.js";

/** Samples, or arrays of them by the names of a model's inputs. */
export type Given = Samples | readonly unknown[] | Readonly<Record<string, unknown>>;

/** From samples, or what the step before made of them. `unfit`: what becomes of values that the step does not take. */
export type Run = (x: Given, unfit: Unfit, report?: RangeReport) => Tensor;

export interface InputStep {
  run: Run;
  /** What to call the columns after it; without this, as before. None: the columns are of its own making. */
  labels?: (before: readonly string[]) => readonly string[];
  /** Whether number i of the samples x before the step lies beyond a calibrated range. */
  outside?: (x: Tensor) => (value: number, i: number) => boolean;
  /** How often the numbers that it makes are gone through; without this, once. */
  rounds?: number;
  /** Of a step that holds steps: they take what `choose` makes of the table, and `joined` puts beside it what they make. */
  nested?: { choose: InputStep; steps: readonly InputStep[]; joined: (x: Tensor, part: Tensor) => Tensor };
}

/** For `labels`: columns that no column of the user's table is. */
export const NAMELESS = (): readonly string[] => [];

/** What the user has, for the first step alone. */
export type Expected =
  | { kind: "numbers"; shape: readonly number[] }
  | { kind: "table"; columns: readonly ExpectedColumn[]; missing: boolean }
  | { kind: "texts" }
  | { kind: "tensors"; inputs: readonly { name: string; shape: readonly number[] }[] };

/** `categories`: those of the training data, null for a missing value; none for numbers. `ignored`: any value does. */
export interface ExpectedColumn {
  name: string;
  categories?: readonly (string | number | boolean | null)[];
  ignored?: boolean;
}

/** A first step, which also says what it takes, and has no samples of that: shapes can be tried with them. */
export interface FirstStep extends InputStep {
  expected: Expected;
  noSamples: Given;
}

export function columnwise(columns: number, f: (value: number, column: number) => number): Run {
  return (x) => {
    const found = tensor(x);
    table(found, columns);
    return mapped(found, (value, i) => f(value, i % columns));
  };
}

/** Output b of a sample is f(column columns[b], b). */
export function picked(columns: Float64Array, f: (value: number, output: number) => number): Run {
  const last = columns.reduce((most, column) => Math.max(most, column), -1);
  return (x) => {
    const found = tensor(x);
    const width = found.shape[1] ?? 0;
    if (found.shape.length !== 2 || last >= width)
      throw new ShapeError(`input: expected a table of at least ${last + 1} columns, got ${width}`);
    return made(found.shape[0] as number, columns.length, (row, b) => f(found.data[row * width + (columns[b] as number)] as number, b));
  };
}

export function clip(value: number, low: number, high: number): number {
  return Number.isNaN(value) ? value : Math.min(Math.max(value, low), high);
}

/** Column by column f of all of its numbers, which may make several columns of it. */
export function ofColumns(columns: number, f: (values: Float64Array, column: number) => Float64Array[]): Run {
  return (x) => {
    const { rows, data } = table(tensor(x), columns);
    const parts = Array.from({ length: columns }, (_, c) =>
      f(
        Float64Array.from({ length: rows }, (_, row) => data[row * columns + c] as number),
        c,
      ),
    ).flat();
    return made(rows, parts.length, (row, c) => parts[c]?.[row] as number);
  };
}

/** Where entry i of an array of shape [samples, ..] is in one of `shape`, which broadcasts to a sample. */
export function broadcast(shape: number[], of: number[]): (i: number) => number {
  const sample = of.slice(1);
  const skipped = sample.length - shape.length;
  if (skipped < 0 || shape.some((extent, axis) => extent !== 1 && extent !== sample[axis + skipped]))
    throw new ShapeError(`input: expected samples of shape [${shape.join(", ")}], got [${sample.join(", ")}]`);
  const size = sizeOf(sample);
  return (i) => {
    let rest = remainder(i, size);
    let [place, stride] = [0, 1];
    for (let axis = sample.length - 1; axis >= 0; --axis) {
      const at = rest % (sample[axis] as number);
      rest = Math.floor(rest / (sample[axis] as number));
      const extent = shape[axis - skipped] ?? 1;
      if (extent > 1) place += at * stride;
      stride *= extent;
    }
    return place;
  };
}
