// Typed values from JSON that strangers wrote: every function gives what its name says, or throws RangeError, which the reader of a
// specification turns into a SerializationError.

import type { Tensor } from "./arrays.js";
import { sizeOf } from "./arrays.js";

export const MOST_NUMBERS = 2 ** 24;
const DEEPEST = 16;

export type Fields = Record<string, unknown>;

export function demand(condition: boolean, rule: string): asserts condition {
  if (!condition) throw new RangeError(`expected ${rule}`);
}

/** Python writes infinite numbers as names, which JSON does not have. */
export function parsedObject(text: string): Fields {
  const plain = text.replace(/"(?:[^"\\]|\\.)*"|Infinity/g, (found) => (found === "Infinity" ? "1e999" : found));
  let value: unknown;
  try {
    value = JSON.parse(plain);
  } catch {
    throw new RangeError("expected JSON");
  }
  return fields(value);
}

export function fields(value: unknown): Fields {
  demand(typeof value === "object" && value !== null && !Array.isArray(value), "a JSON object");
  return value as Fields;
}

export function text(value: unknown): string {
  demand(typeof value === "string", "a text");
  return value;
}

export function flag(value: unknown): boolean {
  demand(typeof value === "boolean", "true or false");
  return value;
}

export function real(value: unknown): number {
  demand(typeof value === "number" && Number.isFinite(value), "a finite number");
  return value;
}

export function integer(value: unknown, low = 0, high = 2 ** 53): number {
  demand(typeof value === "number" && Number.isInteger(value) && value >= low && value <= high, `an integer of ${low} to ${high}`);
  return value;
}

export function entries(value: unknown, most = MOST_NUMBERS): unknown[] {
  demand(Array.isArray(value) && value.length <= most, `a list of at most ${most} entries`);
  return value;
}

export function shape(value: unknown): number[] {
  const extents = entries(value, 32).map((extent) => integer(extent, 1));
  demand(sizeOf(extents) <= MOST_NUMBERS, `a tensor of at most ${MOST_NUMBERS} numbers`);
  return extents;
}

/** An array of any shape; `finite`: without infinities. */
export function reals(value: unknown, finite = true): Tensor {
  const extents: number[] = [];
  for (let level = value; Array.isArray(level); level = level[0]) {
    extents.push(level.length);
    demand(extents.length <= DEEPEST, "an array of fewer dimensions");
    if (level.length === 0) break;
  }
  demand(sizeOf(extents) <= MOST_NUMBERS, "fewer numbers");
  const data = (extents.length === 0 ? [value] : (value as unknown[]).flat(extents.length - 1)) as unknown[];
  demand(data.length === sizeOf(extents), "rows of one length");
  for (const each of data) demand(typeof each === "number" && (finite ? Number.isFinite(each) : !Number.isNaN(each)), "numbers");
  return { shape: extents, data: Float64Array.from(data as number[]) };
}

/** A vector of numbers. */
export function vector(value: unknown, finite = true): Float64Array {
  const found = reals(value, finite);
  demand(found.shape.length === 1, "a vector");
  return found.data;
}

/** A vector of integers. */
export function indices(value: unknown, low = -(2 ** 53)): Float64Array {
  const found = vector(value);
  demand(
    found.every((each) => Number.isInteger(each) && each >= low),
    `integers of at least ${low}`,
  );
  return found;
}

export type Label = string | number | boolean;

export function labels(value: unknown): Label[] {
  const found = entries(value);
  demand(
    found.length > 0 && found.every((each) => ["string", "number", "boolean"].includes(typeof each)),
    "labels that are texts or numbers",
  );
  return found as Label[];
}
