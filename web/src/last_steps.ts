// What a network ends in, done to the decrypted output: softmax, arg-max and the like along an axis, or functions of single numbers.
// models/graph/last_steps.py and models/graph/last_steps.py.

import { extreme, largest, sizeOf, type Tensor } from "./arrays.js";
import { ShapeError } from "./errors.js";
import { chosen, demand, entries, type Fields, fields, flag, integer, integers, readWhole, real, text } from "./fields.js";
import { onnxFunction } from "./functions.js";

export const MOST_LAST_STEPS = 100; // of an output
const MOST_FUNCTIONS = 8;
const MOST_STEPS = 24; // of a function
const MOST_PARAMETERS = 24; // of all of them: the client gets no weights of a model

export interface LastStep {
  run: (x: Tensor) => Tensor;
  /** Whether an output of this shape, without samples, has what the step asks for. */
  fits: (shape: readonly number[]) => boolean;
}

/** [operator, axis, keepdims, count, largest], of earlier releases shorter; or functions and which of them each number has. */
export function lastStep(entry: unknown): LastStep {
  return Array.isArray(entry) ? alongAnAxis(entry) : readWhole(fields(entry), functions);
}

// --- along an axis ---

type Line = (values: Float64Array) => ArrayLike<number>;

function alongAnAxis(entry: unknown[]): LastStep {
  demand(entry.length >= 3 && entry.length <= 5, "an operator with its fields");
  const [operator, axis, keepdims] = [text(entry[0]), integer(entry[1], -(2 ** 53)), flag(entry[2])];
  const count = entry[3] === undefined ? 0 : integer(entry[3]);
  const isLargest = entry[4] === undefined ? true : flag(entry[4]);
  const lines: Readonly<Record<string, Line>> = {
    Softmax: softmaxOf,
    LogSoftmax: (values) => {
      const most = largest(values);
      const shifted = values.map((value) => value - most);
      const sum = Math.log(shifted.reduce((total, value) => total + Math.exp(value), 0));
      return shifted.map((value) => value - sum);
    },
    Hardmax: (values) => {
      const best = extreme(values, true);
      return values.map((_, i) => Number(i === best));
    },
    L2Normalization: unitLength,
    ArgMax: (values) => [extreme(values, true)],
    ArgMin: (values) => [extreme(values, false)],
    TopK: (values) => Float64Array.from(order(values, isLargest).slice(0, count), (i) => values[i] as number),
    TopKIndices: (values) => order(values, isLargest).slice(0, count),
  };
  const line = chosen(lines, operator, `one of the last steps ${Object.keys(lines).join(", ")}`);
  const drops = (operator === "ArgMax" || operator === "ArgMin") && !keepdims;
  return {
    run: (x) => alongAxis(x, axis, line, drops),
    fits: (shape) => {
      const rank = shape.length + 1;
      const place = axis < 0 ? axis + rank : axis;
      if (place < 1 || place >= rank) return false;
      return !operator.startsWith("TopK") || (count >= 1 && count <= (shape[place - 1] as number));
    },
  };
}

/** Stable; what is no number comes last. */
function order(values: Float64Array, isLargest: boolean): number[] {
  const keys = isLargest ? values.map((value) => -value) : values;
  return Array.from(keys.keys()).sort((a, b) => {
    const [one, other] = [keys[a] as number, keys[b] as number];
    if (Number.isNaN(one) || Number.isNaN(other)) return Number(Number.isNaN(one)) - Number(Number.isNaN(other));
    return one < other ? -1 : Number(one > other);
  });
}

function softmaxOf(values: Float64Array): Float64Array {
  const most = largest(values);
  const powers = values.map((value) => Math.exp(value - most));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

/** Divided by their length; zeros stay. */
function unitLength(values: Float64Array): Float64Array {
  const most = values.reduce((found, value) => Math.max(found, Math.abs(value)), 0);
  const scaled = values.map((value) => value / (most > 0 ? most : 1));
  const length = Math.sqrt(scaled.reduce((total, value) => total + value * value, 0));
  return scaled.map((value) => value / (length > 0 ? length : 1));
}

export function softmax(x: Tensor, axis: number): Tensor {
  return alongAxis(x, axis, softmaxOf, false);
}

/** Every line along an axis that is not the first, replaced by line(values). */
function alongAxis(x: Tensor, axis: number, line: Line, drops: boolean): Tensor {
  const place = axis < 0 ? axis + x.shape.length : axis;
  if (!(place >= 1 && place < x.shape.length))
    throw new ShapeError(`output: expected an axis of [${x.shape.join(", ")}] after the first, got ${axis}`);
  const [outer, extent, inner] = [sizeOf(x.shape.slice(0, place)), x.shape[place] as number, sizeOf(x.shape.slice(place + 1))];
  let [out, length] = [new Float64Array(0), 0];
  for (let o = 0; o < outer; ++o)
    for (let i = 0; i < inner; ++i) {
      const found = line(Float64Array.from({ length: extent }, (_, e) => x.data[(o * extent + e) * inner + i] as number));
      if (out.length === 0) [out, length] = [new Float64Array(outer * inner * found.length), found.length];
      for (let e = 0; e < length; ++e) out[(o * length + e) * inner + i] = found[e] as number;
    }
  const shape = [...x.shape];
  shape.splice(place, 1, ...(drops ? [] : [length]));
  return { shape, data: out };
}

// --- functions of single numbers: short programs whose steps read results before them ---

interface Step {
  run: (...values: number[]) => number;
  parameters: number[];
  reads: number[]; // how many results back each operand lies
}

function functions(given: Fields): LastStep {
  const programs = entries(given["functions"], MOST_FUNCTIONS).map((steps) => entries(steps, MOST_STEPS).map(step));
  demand(programs.length > 0, `1 to ${MOST_FUNCTIONS} functions`);
  const parameters = programs.flat().reduce((sum, each) => sum + each.parameters.length, 0);
  demand(parameters <= MOST_PARAMETERS, `functions with at most ${MOST_PARAMETERS} parameters`);
  const which = integers(given["which"], 0);
  demand(which.data.length > 0 && which.data.every((each) => each < programs.length), "a function for each output");
  return {
    run: (x) => ({
      shape: x.shape,
      data: x.data.map((value, i) => applied(programs[which.data[i % which.data.length] as number] as Step[], value)),
    }),
    fits: (shape) => which.shape.join() === shape.join(),
  };
}

function step(entry: unknown, i: number): Step {
  const [operator, parameters, reads, ...others] = entries(entry, 3);
  const found = onnxFunction(text(operator));
  demand(found !== null && others.length === 0, "functions that a client computes");
  const back = entries(reads, MOST_STEPS + 1).map((each) => integer(each, 1, i + 1));
  const numbers = entries(parameters, MOST_PARAMETERS).map(real);
  demand(
    back.length >= found.operands[0] && back.length <= found.operands[1] && numbers.length === found.parameters(back.length),
    "as many operands and parameters as the functions take",
  );
  return { run: found.run, parameters: numbers, reads: back };
}

function applied(steps: Step[], x: number): number {
  const results = [x];
  for (const { run, parameters, reads } of steps)
    results.push(run(...reads.map((back) => results[results.length - back] as number), ...parameters));
  return results.at(-1) as number;
}
