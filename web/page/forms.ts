// One sample of a model: a board for digits, pictures for photographs, a form for the zoo's tables, numbers for all others.

import { bitmapImage, BLOCKS, MOST } from "./bitmap_image.js";
import { board, type Reading } from "./board.js";
import { digitImage, SIDE, type Stroke } from "./digit_image.js";
import { made } from "./elements.js";
import { expectedForm } from "./expected_form.js";
import type { Description, WholeSample } from "./messages.js";
import { photograph } from "./photograph.js";
import samples from "./samples.json" with { type: "json" };

export interface Form {
  element: HTMLElement;
  /** The sample, or what is missing. */
  numbers(): number[] | WholeSample | string;
  /** What the answer to the sample may be wrong for, told with it; never the values. */
  doubts?(): string[];
  /** Names of the model's outputs, as far as they are known. */
  classes: readonly string[];
  /** Whether the scores are logarithms of odds: the model was trained so that their softmax gives probabilities. */
  isLogits: boolean;
}

interface Table {
  title: string;
  source: string;
  classes: string[];
  /** low to high: round numbers around all samples of the data set. */
  features: { name: string; low: number; high: number }[];
  examples: { class: string; values: number[] }[];
}

const TABLES: Readonly<Record<string, Table>> = samples.tables;
const LOGITS: readonly string[] = samples.logits;
const { photographs, bitmaps } = samples;
const MNIST: Reading = {
  image: digitImage,
  side: SIDE,
  most: 1,
  encrypted: `${SIDE} x ${SIDE} numbers`,
  samples: (samples.digits as unknown as Stroke[][]).map((strokes, digit) => ({ name: String(digit), strokes })),
};
const BITMAPS: Reading = {
  image: bitmapImage,
  side: BLOCKS,
  most: MOST,
  encrypted: `${BLOCKS} x ${BLOCKS} numbers from 0 to ${MOST}, pixels of ink in each block of a bitmap of 32 x 32. Data: ${bitmaps.source}`,
  samples: bitmaps.examples.map((numbers, digit) => ({ name: String(digit), numbers })),
};

const TITLES: readonly (readonly [string, string])[] = [
  ["mnist", "Digits: which one is it?"],
  [bitmaps.model, "Digits as 8 x 8 blocks: which one is it?"],
  ["cifar10", "Photographs: what is on it?"],
];

/** What people read in the list of models. */
export function titleOf(model: string): string {
  const title = TABLES[model]?.title ?? TITLES.find(([start]) => model.startsWith(start))?.[1] ?? null;
  return title === null ? model : `${title} (${model})`;
}

export function formOf(model: string, description: Description): Form {
  return { ...formFor(model, description), isLogits: LOGITS.includes(model) };
}

function formFor(model: string, { inputShape, expected }: Description): Omit<Form, "isLogits"> {
  const table = TABLES[model];
  if (table !== undefined) return tableForm(table);
  const size = inputShape.reduce((product, extent) => product * extent, 1);
  if (model === bitmaps.model && size === BLOCKS * BLOCKS) return board(BITMAPS);
  if (LOGITS.includes(model) && inputShape.join() === [3, photographs.side, photographs.side].join())
    return photograph(photographs.side, photographs.classes);
  const isDigit = size === SIDE * SIDE && (inputShape.length === 1 || inputShape.slice(-2).join() === `${SIDE},${SIDE}`);
  return isDigit ? board(MNIST) : (expectedForm(expected) ?? numbersForm(inputShape, size));
}

function tableForm({ features, examples, classes, source }: Table): Omit<Form, "isLogits"> {
  // No `min` and `max`: the model takes every number.
  const inputs = features.map((_, i) =>
    made("input", { id: `feature-${i}`, type: "number", step: "any", required: true, inputMode: "decimal" }),
  );
  const fields = features.map(({ name, low, high }, i) =>
    made("div", {}, made("label", { htmlFor: `feature-${i}`, textContent: `${name}, ${low} to ${high}` }), inputs[i] as HTMLInputElement),
  );
  const fill = (values: number[]): void => inputs.forEach((input, i) => (input.value = String(values[i])));
  const buttons = examples.map((each) =>
    made("button", { type: "button", textContent: `Example: ${each.class}`, onclick: () => fill(each.values) }),
  );
  fill(examples[0]?.values ?? []);
  const element = made(
    "div",
    {},
    made("div", { className: "digits" }, ...buttons),
    made("div", { className: "fields" }, ...fields),
    made("p", { className: "quiet", textContent: `Data: ${source}` }),
  );
  const numbers = (): number[] | string => {
    const values = inputs.map((input) => input.valueAsNumber); // NaN for what is none, and for more than a number holds
    const wrong = values.findIndex((value) => !Number.isFinite(value));
    if (wrong < 0) return values;
    inputs[wrong]?.focus();
    const { name, low, high } = features[wrong] as Table["features"][number];
    return `${name}: a number is needed; the data set has ${low} to ${high}.`;
  };
  const doubts = (): string[] => {
    const values = inputs.map((input) => input.valueAsNumber);
    const beyond = features.filter(({ low, high }, i) => (values[i] as number) < low || (values[i] as number) > high);
    const names = beyond.map(({ name }) => name);
    return names.length === 0 ? [] : [`no sample of the data set is as far out in ${names.join(", ")}; the answer is a guess there`];
  };
  return { element, numbers, doubts, classes };
}

function numbersForm(inputShape: number[], size: number): Omit<Form, "isLogits"> {
  const area = made("textarea", { id: "numbers", rows: 6, value: Array.from({ length: size }, () => "0").join(", ") });
  const text = `The numbers of one sample, separated by commas or spaces. ${size} numbers [${inputShape.join(", ")}] are encrypted; a model of tables makes them from its columns.`;
  const element = made(
    "div",
    {},
    made("label", { htmlFor: "numbers", textContent: "Numbers" }),
    area,
    made("p", { className: "quiet", textContent: text }),
  );
  const numbers = (): number[] | string => {
    const values = area.value.split(/[\s,;]+/).filter((word) => word !== "");
    if (values.length === 0) return "Numbers are needed.";
    const wrong = values.find((word) => !Number.isFinite(Number(word)));
    return wrong === undefined ? values.map(Number) : `'${wrong.slice(0, 20)}' is not a number.`;
  };
  return { element, numbers, classes: [] };
}
