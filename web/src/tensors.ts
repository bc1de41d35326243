// Steps of models with several inputs or outputs: tensors by name to one vector of numbers and back. models/client_steps/tensors.py.

import { sizeOf, type Tensor } from "./arrays.js";
import { COLUMN_STEPS } from "./column_steps.js";
import { type FirstStep, type Given, type InputStep, MOST_COLUMNS, type Run } from "./columns.js";
import { ShapeError } from "./errors.js";
import { chosen, demand, entries, type Fields, fields, indices, MOST_NUMBERS, readWhole, shape, text } from "./fields.js";
import { type LastStep, lastStep, MOST_LAST_STEPS } from "./last_steps.js";
import type { Unfit } from "./unfit.js";

const MOST_TENSORS = 1024;
const MOST_STEPS = 1000;
const OF_AN_INPUT = ["Quantise", "Rescale"];

/** Arrays [samples, *shape] by name. */
export type NamedTensors = Record<string, Tensor>;

/** Arrays by name, or a list of them in order, to [samples, numbers]; each goes through steps of its own. */
export function tensors(given: Fields): FirstStep {
  const unused = entries(given["unused"], MOST_TENSORS).map(text);
  const { names, shapes } = namesAndShapes(given, unused);
  const steps = entries(given["steps"], MOST_TENSORS).map((own) => entries(own, MOST_STEPS).map(stepOfAnInput));
  demand(steps.length === names.length, "steps for each input");
  const run: Run = (x, unfit, report) => {
    const arrays = givenArrays(x, names, unused).map((each, i) => checkedArray(each, names[i] as string, shapes[i] as number[], unfit));
    const count = arrays[0]?.shape[0] as number;
    const other = arrays.findIndex((each) => each.shape[0] !== count);
    if (other >= 0)
      throw new ShapeError(
        `input '${names[other]}': expected ${count} samples as in input '${names[0]}', got ${arrays[other]?.shape[0] ?? 0}`,
      );
    return sideBySide(
      arrays.map((array, i) =>
        (steps[i] as InputStep[]).reduce((value, step) => {
          if (step.outside !== undefined) report?.add(value, step.outside(value), () => labelsOf(names[i] as string, value.shape.slice(1)));
          return step.run(value, unfit);
        }, array),
      ),
    );
  };
  return {
    run,
    labels: () => names.flatMap((name, i) => labelsOf(name, shapes[i] as number[])),
    expected: { kind: "tensors", inputs: names.map((name, i) => ({ name, shape: shapes[i] as number[] })) },
    noSamples: shapes.map((each) => ({ shape: [0, ...each], data: new Float64Array() })),
  };
}

/**
 * Numbers [samples, numbers] to arrays by name, each after its own last steps. Number i of all outputs, one after the other, is number
 * spread[i] of what was decrypted: outputs may have numbers in common.
 */
export function named(given: Fields): (x: Tensor) => NamedTensors {
  const { names, shapes } = namesAndShapes(given);
  const spread = indices(given["spread"], 0);
  const steps = entries(given["steps"], MOST_TENSORS).map((own) => entries(own, MOST_LAST_STEPS).map(lastStep));
  demand(steps.length === names.length, "last steps for each output");
  demand(spread.length === shapes.reduce((sum, each) => sum + sizeOf(each), 0), "a number for each of the outputs'");
  steps.forEach((own, i) =>
    demand(
      own.every((step) => step.fits(shapes[i] as number[])),
      "last steps that fit their output",
    ),
  );
  const width = spread.reduce((most, each) => Math.max(most, each), -1) + 1;
  return (x) => {
    if (x.shape.length !== 2 || x.shape[1] !== width)
      throw new ShapeError(`output: expected ${width} numbers for a sample, got [${x.shape.join(", ")}]; the result is of another model`);
    const rows = x.shape[0] as number;
    let first = 0;
    const answers = names.map((name, i): [string, Tensor] => {
      const [own, size] = [shapes[i] as number[], sizeOf(shapes[i] as number[])];
      const data = Float64Array.from(
        { length: rows * size },
        (_, at) => x.data[Math.floor(at / size) * width + (spread[first + (at % size)] as number)] as number,
      );
      first += size;
      return [name, (steps[i] as LastStep[]).reduce<Tensor>((value, step) => step.run(value), { shape: [rows, ...own], data })];
    });
    return Object.fromEntries(answers);
  };
}

function namesAndShapes(given: Fields, unused: string[] = []): { names: string[]; shapes: number[][] } {
  const names = entries(given["names"], MOST_TENSORS).map(text);
  const shapes = entries(given["shapes"], MOST_TENSORS).map(shape);
  const everyone = [...names, ...unused];
  demand(names.length > 0 && everyone.length <= MOST_TENSORS, `1 to ${MOST_TENSORS} tensors`);
  demand(everyone.every((name) => name !== "") && new Set(everyone).size === everyone.length, "names that differ");
  demand(shapes.length === names.length, "a shape for each tensor");
  demand(
    shapes.every((each) => each.every((extent) => extent <= MOST_COLUMNS)),
    "positive extents",
  );
  demand(shapes.reduce((sum, each) => sum + sizeOf(each), 0) <= MOST_NUMBERS, `at most ${MOST_NUMBERS} numbers`);
  return { names, shapes };
}

function stepOfAnInput(entry: unknown): InputStep {
  const name = text(fields(entry)["step"]);
  demand(OF_AN_INPUT.includes(name), "inputs that are rounded or rescaled");
  return readWhole(fields(entry), (given) => chosen(COLUMN_STEPS, text(given["step"]), "known steps")(given));
}

function givenArrays(x: Given, names: string[], unused: string[]): unknown[] {
  if (Array.isArray(x)) {
    if (x.length !== names.length)
      throw new ShapeError(`input: expected a list of ${names.length} arrays (${shown(names)}), got ${x.length}`);
    return x;
  }
  const found = x as Readonly<Record<string, unknown>>;
  if (typeof x !== "object" || x === null)
    throw new ShapeError(`input: the model has several inputs; expected an object of arrays by name, or a list of them: ${shown(names)}`);
  const absent = names.filter((name) => !Object.hasOwn(found, name));
  const extra = Object.keys(found).filter((name) => !names.includes(name) && !unused.includes(name));
  if (absent.length > 0 || extra.length > 0)
    throw new ShapeError(
      `input: expected arrays by the names of the inputs: ${shown(names)}` +
        `${absent.length > 0 ? `; missing ${shown(absent)}` : ""}${extra.length > 0 ? `; unexpected ${shown(extra)}` : ""}`,
    );
  return names.map((name) => found[name]);
}

function checkedArray(given: unknown, name: string, expected: number[], unfit: Unfit): Tensor {
  let found: Tensor;
  unfit.at(({ shape }) => labelsOf(name, shape.slice(1)));
  try {
    found = unfit.numbers(given);
  } catch (error) {
    if (error instanceof ShapeError) throw new ShapeError(`input '${name}': expected an array of numbers`);
    throw error;
  }
  if (found.shape.length !== expected.length + 1 || found.shape.slice(1).join() !== expected.join())
    throw new ShapeError(
      `input '${name}': expected an array of shape [${["'samples'", ...expected].join(", ")}], got [${found.shape.join(", ")}]; samples come first`,
    );
  return unfit.withoutMissing(unfit.withoutInfinite(found));
}

function sideBySide(arrays: Tensor[]): Tensor {
  const rows = arrays[0]?.shape[0] as number;
  const sizes = arrays.map(({ shape }) => sizeOf(shape.slice(1)));
  const width = sizes.reduce((sum, size) => sum + size, 0);
  const data = new Float64Array(rows * width);
  let first = 0;
  arrays.forEach((array, i) => {
    const size = sizes[i] as number;
    for (let row = 0; row < rows; ++row) data.set(array.data.subarray(row * size, (row + 1) * size), row * width + first);
    first += size;
  });
  return { shape: [rows, width], data };
}

/** Of the numbers of a tensor: columns of a table by number, others by the tensor's name alone. */
function labelsOf(name: string, of: readonly number[]): string[] {
  if (of.length === 1) return Array.from({ length: of[0] as number }, (_, column) => `${name}[${column}]`);
  return Array<string>(sizeOf(of)).fill(name);
}

function shown(names: string[]): string {
  const more = names.length > 8 ? [`and ${names.length - 8} more`] : [];
  return [...names.slice(0, 8).map((name) => `'${name}'`), ...more].join(", ");
}
