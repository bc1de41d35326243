// Steps before encryption: what models/client_steps does, from what the user has to the numbers that are encrypted.

import { made, type Tensor, tensor } from "./arrays.js";
import { COLUMN_STEPS } from "./column_steps.js";
import { type FirstStep, type Given, type InputStep, picked } from "./columns.js";
import { ShapeError } from "./errors.js";
import { FEATURE_STEPS } from "./feature_steps.js";
import { chosen, demand, entries, type Fields, fields, indices, readWhole, text } from "./fields.js";
import { categories, columns, numbered } from "./first_steps.js";
import { positions, thermometer } from "./grids.js";
import { MOST_COLUMNS, MOST_STEPS } from "./limits.js";
import type { RangeReport } from "./range_report.js";
import { extentOf, StepSizes } from "./step_sizes.js";
import { tensors } from "./tensors.js";
import { texts } from "./texts.js";
import type { Unfit } from "./unfit.js";

const DEEPEST = 8;

// They check what the user has, and come first, there alone.
const FIRST: Readonly<Record<string, (given: Fields) => FirstStep>> = {
  Columns: columns,
  Categories: categories,
  Texts: texts,
  Tensors: tensors,
};
const TAKE_ANY_TENSOR = ["Quantise", "Rescale"];

const LATER: Readonly<Record<string, (given: Fields, depth: number, sizes: StepSizes) => InputStep>> = {
  ...COLUMN_STEPS,
  ...FEATURE_STEPS,
  Thermometer: thermometer,
  Positions: positions,
  Append: append,
};

/** Input steps in their order; `first` is the one that checks what the user has, null where any tensor of the right shape will do. */
export interface InputSteps {
  first: FirstStep | null;
  steps: readonly InputStep[];
  /** Of what all of them make, known after they ran once. */
  sizes: StepSizes;
}

export function inputSteps(value: unknown): InputSteps {
  const list = entries(value, MOST_STEPS);
  const sizes = new StepSizes();
  const name = list.length === 0 ? "" : text(fields(list[0])["step"]);
  if (!Object.hasOwn(FIRST, name)) {
    demand(list.length === 0 || TAKE_ANY_TENSOR.includes(name), "a table's columns checked in the first step");
    return { first: null, steps: laterSteps(list, 0, sizes), sizes };
  }
  const first = readWhole(fields(list[0]), (given) => chosen(FIRST, text(given["step"]), "known steps")(given));
  return { first, steps: [sizes.counted(first), ...laterSteps(list.slice(1), 0, sizes)], sizes };
}

function laterSteps(list: unknown[], depth: number, sizes: StepSizes): InputStep[] {
  return list.map((entry) =>
    sizes.counted(readWhole(fields(entry), (given) => chosen(LATER, text(given["step"]), "known steps")(given, depth, sizes))),
  );
}

/** `unfit`: what becomes of values that a step does not take; `report` takes what lies beyond a calibrated range. */
export function runInputSteps({ first, steps, sizes }: InputSteps, x: Given, unfit: Unfit, report?: RangeReport): Tensor {
  let value = x;
  sizes.check(extentOf(x, first?.expected.kind === "tensors"));
  steps.forEach((step, i) => {
    if (report !== undefined && step.outside !== undefined) {
      const numbers = tensor(value);
      report.add(numbers, step.outside(numbers), () => columnLabels(steps.slice(0, i), numbers));
    }
    value = after(step, steps.slice(0, i), value, { sizes, unfit, report });
  });
  return tensor(value);
}

/** What a step makes of x. `before`: the steps that made x, which say what its columns are called. */
function after(step: InputStep, before: readonly InputStep[], x: Given, { sizes, unfit, report }: Course): Tensor {
  unfit.at((found) => columnLabels(before, found));
  if (step.nested === undefined) return sizes.noted(step, x, step.run(x, unfit, report));
  const { choose, steps, joined } = step.nested;
  const found = tensor(x);
  const part = steps.reduce(
    (value, inner, i) => after(inner, [...before, choose, ...steps.slice(0, i)], value, { sizes, unfit }),
    choose.run(found, unfit),
  );
  sizes.noted(choose, found, part);
  return sizes.noted(step, found, joined(found, part));
}

/** What accompanies samples through the steps. */
interface Course {
  sizes: StepSizes;
  unfit: Unfit;
  report?: RangeReport | undefined;
}

/** What to call the columns of a table x after these steps; null where x is no table. */
export function columnLabels(before: readonly InputStep[], x: Tensor): readonly string[] | null {
  if (x.shape.length !== 2) return null;
  const labels = before.reduce<readonly string[]>((found, step, i) => labelsAfter(step, found, i === 0), []);
  return labels.length === x.shape[1] ? labels : numbered(x.shape[1] as number);
}

function labelsAfter(step: InputStep, before: readonly string[], isFirst: boolean): readonly string[] {
  return step.labels === undefined || (before.length === 0 && !isFirst) ? before : step.labels(before);
}

/** The table, and beside it what the steps make of some of its columns: how parts of a table are prepared in different ways. */
function append(given: Fields, depth: number, sizes: StepSizes): InputStep {
  demand(depth < DEEPEST, `steps nested at most ${DEEPEST} deep`);
  const [columns, steps] = [indices(given["columns"], 0), laterSteps(entries(given["steps"], MOST_STEPS), depth + 1, sizes)];
  const select: InputStep = {
    run: picked(columns, (value) => value),
    labels: (before) => Array.from(columns, (column) => before[column] as string),
  };
  const joined = (x: Tensor, part: Tensor): Tensor => {
    const [width, more] = [x.shape[1] as number, part.shape[1] as number];
    if (width + more > MOST_COLUMNS) throw new ShapeError(`input: expected steps that make at most ${MOST_COLUMNS} columns`);
    return made(
      x.shape[0] as number,
      width + more,
      (row, c) => (c < width ? x.data[row * width + c] : part.data[row * more + c - width]) as number,
    );
  };
  return {
    run: (x) => tensor(x),
    nested: { choose: select, steps, joined },
    labels: (before) => {
      const chosenOnes: readonly string[] = Array.from(columns, (column) => before[column] as string);
      const after = steps.reduce((labels, step) => labelsAfter(step, labels, false), chosenOnes);
      return after.length > 0 ? [...before, ...after] : [];
    },
  };
}
