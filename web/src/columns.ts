// What steps on columns have in common.

import { made, mapped, remainder, type Samples, sizeOf, table, type Tensor, tensor } from "./arrays.js";
import { ShapeError } from "./errors.js";

/** From samples, or what the step before made of them. */
export type InputStep = (x: Samples | unknown[]) => Tensor;

export function columnwise(columns: number, f: (value: number, column: number) => number): InputStep {
  return (x) => {
    const found = tensor(x);
    table(found, columns);
    return mapped(found, (value, i) => f(value, i % columns));
  };
}

/** Output b of a sample is f(column columns[b], b). */
export function picked(columns: ArrayLike<number>, f: (value: number, output: number) => number): InputStep {
  const last = Math.max(...Array.from(columns), -1);
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
