// What follows the scores [samples, outputs] of a model of tables: models/client_steps/transforms.py.

import { extreme, made, mapped, type Tensor } from "./arrays.js";
import { ShapeError } from "./errors.js";
import { softmax } from "./last_steps.js";

type Transform = (scores: Tensor, parameter: number, classes: boolean) => Tensor;

export const TRANSFORMS: Readonly<Record<string, Transform>> = {
  none: (s, _, classes) => (classes && s.shape[1] === 1 ? twoClasses(s) : s),
  sigmoid: (s, _, classes) =>
    ofClasses(
      mapped(s, (value) => 1 / (1 + Math.exp(-value))),
      classes,
    ),
  softmax: (s, slope, classes) => {
    const both = classes && s.shape[1] === 1 ? made(s.shape[0] as number, 2, (row, c) => (s.data[row] as number) * (c === 0 ? -1 : 1)) : s;
    return softmax(
      mapped(both, (value) => slope * value),
      1,
    );
  },
  shares: (s, _, classes) => ofClasses(s, classes),
  exp: (s) => mapped(s, Math.exp),
  modified_huber: (s, _, classes) =>
    ofClasses(
      mapped(s, (value) => (Math.min(Math.max(value, -1), 1) + 1) / 2),
      classes,
    ),
  isolation: (s, divisor) => mapped(s, (value) => -(2 ** (-value / divisor))),
  decision: (s) => s,
};

/** The score above which one column means the second class: shares are compared with 1/2, raw sums with 0. */
export function classThreshold(transform: string): number {
  return transform === "none" || transform === "shares" ? 0.5 : 0;
}

function twoClasses(second: Tensor): Tensor {
  return made(second.shape[0] as number, 2, (row, c) => (c === 0 ? 1 - (second.data[row] as number) : (second.data[row] as number)));
}

/** One column of a classifier is the second class; one against the rest is normalised. */
function ofClasses(transformed: Tensor, classes: boolean): Tensor {
  if (!classes) return transformed;
  const columns = ofTable(transformed);
  if (columns === 1) return twoClasses(transformed);
  const totals = Array.from({ length: transformed.shape[0] as number }, (_, row) =>
    transformed.data.subarray(row * columns, (row + 1) * columns).reduce((sum, value) => sum + value, 0),
  );
  return mapped(transformed, (value, i) => {
    const total = totals[Math.floor(i / columns)] as number;
    return total > 0 ? value / total : 1 / columns;
  });
}

/** Its columns. */
function ofTable(scores: Tensor): number {
  if (scores.shape.length !== 2) throw new ShapeError(`output: expected scores [samples, outputs], got [${scores.shape.join(", ")}]`);
  return scores.shape[1] as number;
}

/** The largest score of each sample, the first of equal ones; of one column whether it is above the threshold. */
export function bestClass(scores: Tensor, threshold: number): number[] {
  const columns = ofTable(scores);
  return Array.from({ length: scores.shape[0] as number }, (_, row) =>
    columns === 1
      ? Number((scores.data[row] as number) > threshold)
      : extreme(scores.data.subarray(row * columns, (row + 1) * columns), true),
  );
}
