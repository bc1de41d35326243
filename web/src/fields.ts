// Typed values from JSON that strangers wrote: every function gives what its name says, or throws RangeError, which the reader of a
// specification turns into a SerializationError.

import type { Tensor } from "./arrays.js";
import { sizeOf } from "./arrays.js";
import { MOST_SPECIFICATION_PARTS } from "./limits.js";

export const MOST_NUMBERS = 2 ** 24;
const LARGEST_INTEGER = 2 ** 53;
const DEEPEST = 16;

export type Fields = Record<string, unknown>;

export function demand(condition: boolean, rule: string): asserts condition {
  if (!condition) throw new RangeError(`expected ${rule}`);
}

/** Python writes infinite numbers as names, which JSON does not have. */
export function parsedObject(text: string): Fields {
  const plain = withoutInfinities(text);
  let value: unknown;
  try {
    value = JSON.parse(plain);
  } catch {
    throw new RangeError("expected JSON");
  }
  return fields(value);
}

/** In one pass: a text in quotes stays as it is, and what is between them says how many lists and objects there are. */
function withoutInfinities(text: string): string {
  const pieces: string[] = [];
  let [parts, start, copied] = [0, 0, 0];
  while (start < text.length) {
    const quote = text.indexOf('"', start);
    const end = quote < 0 ? text.length : quote;
    let infinite = false;
    for (let i = start; i < end; ++i) {
      const code = text.charCodeAt(i);
      if (code === LIST || code === OBJECT) ++parts;
      infinite ||= code === INFINITE;
    }
    demand(parts <= MOST_SPECIFICATION_PARTS, `at most ${MOST_SPECIFICATION_PARTS} lists and objects`);
    if (infinite) {
      pieces.push(text.slice(copied, start), text.slice(start, end).replaceAll("Infinity", "1e999"));
      copied = end;
    }
    start = quote < 0 ? text.length : endOfText(text, quote);
  }
  return pieces.length === 0 ? text : pieces.join("") + text.slice(copied);
}

const [LIST, OBJECT, INFINITE] = ["[", "{", "I"].map((character) => character.charCodeAt(0));

/** After the closing quote of the text that begins at `quote`; the end of all where there is none. */
function endOfText(text: string, quote: number): number {
  for (let end = text.indexOf('"', quote + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let backslashes = 0;
    while (text[end - 1 - backslashes] === "\\") ++backslashes;
    if (backslashes % 2 === 0) return end + 1;
  }
  return text.length;
}

export function fields(value: unknown): Fields {
  demand(typeof value === "object" && value !== null && !Array.isArray(value), "a JSON object");
  return value as Fields;
}

/** As Python's, without halves of characters. */
export function text(value: unknown): string {
  demand(typeof value === "string" && !/\p{Surrogate}/u.test(value), "a text");
  return value;
}

/** What a table has under a name of its own. */
export function chosen<T>(table: Readonly<Record<string, T>>, name: string, rule: string): T {
  demand(Object.hasOwn(table, name), rule);
  return table[name] as T;
}

/**
 * What `make` reads of an entry; RangeError where a field is left over, which a newer release may mean something by.
 */
export function readWhole<T>(entry: Fields, make: (given: Fields) => T): T {
  const read = new Set<unknown>();
  const get = (_: Fields, name: string | symbol): unknown => {
    read.add(name);
    return typeof name === "string" && Object.hasOwn(entry, name) ? entry[name] : undefined;
  };
  const found = make(new Proxy(entry, { get }));
  demand(
    Object.keys(entry).every((name) => read.has(name)),
    "no other fields of a step",
  );
  return found;
}

export function flag(value: unknown): boolean {
  demand(typeof value === "boolean", "true or false");
  return value;
}

export function real(value: unknown): number {
  demand(typeof value === "number" && Number.isFinite(value), "a finite number");
  return value;
}

export function integer(value: unknown, low = 0, high = LARGEST_INTEGER): number {
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
  const data = new Float64Array(sizeOf(extents));
  let filled = 0;
  const visit = (part: unknown, depth: number): void => {
    if (depth === extents.length) {
      demand(typeof part === "number" && (finite ? Number.isFinite(part) : !Number.isNaN(part)), "numbers");
      data[filled++] = part;
    } else {
      demand(Array.isArray(part) && part.length === extents[depth], "rows of one length");
      for (const each of part) visit(each, depth + 1);
    }
  };
  visit(value, 0);
  return { shape: extents, data };
}

/** A vector of numbers. */
export function vector(value: unknown, finite = true): Float64Array {
  const found = reals(value, finite);
  demand(found.shape.length === 1, "a vector");
  return found.data;
}

/** A vector of integers. */
export function indices(value: unknown, low = -LARGEST_INTEGER): Float64Array {
  const found = vector(value);
  checkIntegers(found, low);
  return found;
}

/** An array of any shape, of integers of at least `low`. */
export function integers(value: unknown, low = -LARGEST_INTEGER): Tensor {
  const found = reals(value);
  checkIntegers(found.data, low);
  return found;
}

function checkIntegers(values: Float64Array, low: number): void {
  demand(
    values.every((each) => Number.isInteger(each) && each >= low && each <= LARGEST_INTEGER),
    `integers of ${low} to ${LARGEST_INTEGER}`,
  );
}

export type Label = string | number | boolean;

export function labels(value: unknown): Label[] {
  const found = entries(value).map((each) => (typeof each === "string" ? text(each) : each));
  demand(found.length > 0 && found.every(isLabel), "labels that are texts or numbers");
  return found as Label[];
}

export function isLabel(value: unknown): value is Label {
  return ["string", "number", "boolean"].includes(typeof value);
}
