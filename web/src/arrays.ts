// Tensors of real numbers, in C order.

import { ShapeError } from "./errors.js";

export interface Tensor {
  shape: number[];
  data: Float64Array;
}

/** Samples as nested lists, or numbers with their shape; null is a missing value, as JSON has no NaN. */
export type Samples = Nested[] | Tensor;
export type Nested = number | null | ArrayLike<number> | Nested[];

export function sizeOf(shape: readonly number[]): number {
  return shape.reduce((product, extent) => product * extent, 1);
}

/** ShapeError for rows of different lengths; `other(cell, i)` is what becomes of a cell that is no number, by default a ShapeError. NaN passes. */
export function tensor(x: unknown, other: (cell: unknown, i: number) => number = noNumber): Tensor {
  if (isTensor(x)) {
    if (sizeOf(x.shape) !== x.data.length)
      throw new ShapeError(`input: expected ${sizeOf(x.shape)} numbers for shape [${x.shape.join(", ")}], got ${x.data.length}`);
    return x;
  }
  const shape: number[] = [];
  for (let level: unknown = x; isList(level); level = level[0]) {
    shape.push(level.length);
    if (level.length === 0) break;
  }
  const data = new Float64Array(sizeOf(shape));
  let filled = 0;
  const visit = (value: unknown, depth: number): void => {
    if (depth < shape.length) {
      if (!isList(value) || value.length !== shape[depth])
        throw new ShapeError("input: expected an array [samples, ..], got rows of different lengths");
      for (let i = 0; i < value.length; ++i) visit(value[i], depth + 1);
    } else if (isList(value)) {
      throw new ShapeError("input: expected an array [samples, ..], got lists in the place of numbers");
    } else if (value === null) {
      data[filled++] = NaN;
    } else {
      data[filled] = typeof value === "number" || typeof value === "boolean" ? Number(value) : other(value, filled);
      ++filled;
    }
  };
  visit(x, 0);
  return { shape, data };
}

function noNumber(): never {
  throw new ShapeError("input: expected real numbers; convert texts and lists first");
}

function isTensor(x: unknown): x is Tensor {
  return typeof x === "object" && x !== null && "shape" in x && "data" in x && (x as Tensor).data instanceof Float64Array;
}

function isList(value: unknown): value is ArrayLike<unknown> {
  return Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));
}

/** A table of `columns` columns; ShapeError for another width. */
export function table(x: Tensor, columns: number): { rows: number; columns: number; data: Float64Array } {
  if (x.shape.length !== 2 || x.shape[1] !== columns)
    throw new ShapeError(`input: expected an array of shape ['samples', ${columns}], got [${x.shape.join(", ")}]; samples come first`);
  return { rows: x.shape[0] as number, columns, data: x.data };
}

/** [rows, columns] with value(row, column). */
export function made(rows: number, columns: number, value: (row: number, column: number) => number): Tensor {
  const data = new Float64Array(rows * columns);
  for (let row = 0, i = 0; row < rows; ++row) for (let column = 0; column < columns; ++column, ++i) data[i] = value(row, column);
  return { shape: [rows, columns], data };
}

export function mapped(x: Tensor, f: (value: number, position: number) => number): Tensor {
  return { shape: x.shape, data: x.data.map(f) };
}

/** How many of the ascending numbers are below value (`right`: at most it); NaN comes after all, as in numpy. */
export function searchSorted(sorted: ArrayLike<number>, value: number, right: boolean): number {
  return searched(sorted.length, (i) => sorted[i] as number, value, right);
}

/** The same of `count` ascending numbers at(0), at(1), .. */
export function searched(count: number, at: (i: number) => number, value: number, right: boolean): number {
  if (Number.isNaN(value)) return count;
  let [low, high] = [0, count];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const found = at(middle);
    if (found < value || (right && found === value)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** numpy's interp: between the points (x, y), x ascending, by straight lines; beyond them the ends. Of equal x the last one counts. */
export function interpolated(value: number, x: ArrayLike<number>, y: ArrayLike<number>): number {
  const last = x.length - 1;
  const [at, of] = [(i: number) => x[i] as number, (i: number) => y[i] as number];
  if (last === 0) return of(0);
  if (Number.isNaN(value)) return value;
  const left = searchSorted(x, value, true) - 1;
  if (left < 0) return of(0);
  if (left >= last || at(left) === value) return of(Math.min(left, last));
  const slope = (of(left + 1) - of(left)) / (at(left + 1) - at(left));
  const found = slope * (value - at(left)) + of(left);
  if (!Number.isNaN(found)) return found;
  const back = slope * (value - at(left + 1)) + of(left + 1); // an infinite slope
  return Number.isNaN(back) && of(left) === of(left + 1) ? of(left) : back;
}

/** NaN where one is, as numpy's max. */
export function largest(values: ArrayLike<number>): number {
  let most = -Infinity;
  for (let i = 0; i < values.length; ++i) most = Math.max(most, values[i] as number);
  return most;
}

/** Where the largest (least) is, the first of equal ones; NaN counts as that. */
export function extreme(values: ArrayLike<number>, largest: boolean): number {
  let best = 0;
  for (let i = 0; i < values.length; ++i) {
    const [value, found] = [values[i] as number, values[best] as number];
    if (Number.isNaN(found)) break;
    if (Number.isNaN(value) || (largest ? value > found : value < found)) best = i;
  }
  return best;
}

/** numpy's remainder, of the divisor's sign. */
export function remainder(value: number, divisor: number): number {
  const rest = value % divisor;
  return rest !== 0 && rest < 0 !== divisor < 0 ? rest + divisor : rest + 0;
}

const TIE_BREAKER = 1.5 * 2 ** 52; // y + this - this is y to the nearest integer, halves to the even one, |y| < 2^51

/** Anything to its nearest integer, halves to the even one, as numpy's rint. */
export function roundHalfEven(value: number): number {
  if (Math.abs(value) < 2 ** 51) return value + TIE_BREAKER - TIE_BREAKER;
  const below = Math.floor(value);
  const rest = value - below;
  return rest < 0.5 || (rest === 0.5 && below % 2 === 0) ? below : below + 1;
}
