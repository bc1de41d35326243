// One sample of a model: a board for digits, pictures for photographs, a form for the zoo's tables, numbers for all others.

import { bitmapImage, BLOCKS, MOST } from "./bitmap_image.js";
import { board, type Reading } from "./board.js";
import { digitImage, SIDE, type Stroke } from "./digit_image.js";
import { changed, made } from "./elements.js";
import { expectedForm } from "./expected_form.js";
import { fieldOf, numbersIn, numbersArea } from "./fields.js";
import type { Description } from "./messages.js";
import { type Form, Missing } from "./missing.js";
import { photograph } from "./photograph.js";
import samples from "./samples.json" with { type: "json" };

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
  encrypted: `${BLOCKS} x ${BLOCKS} numbers from 0 to ${MOST}. Each counts the inked pixels in one block of a bitmap of 32 x 32. Data: ${bitmaps.source}`,
  samples: bitmaps.examples.map((numbers, digit) => ({ name: String(digit), numbers })),
};

const TITLES: readonly (readonly [string, string])[] = [
  ["mnist", "Digits: which one is it?"],
  [bitmaps.model, "Digits as 8 x 8 blocks: which one is it?"],
  ["cifar10", "Photographs: what do they show?"],
];

/** What people read in the list of models. */
export function titleOf(model: string): string {
  const title = TABLES[model]?.title ?? TITLES.find(([start]) => model.startsWith(start))?.[1] ?? null;
  return title === null ? model : `${title} (${model})`;
}

export function formOf(model: string, description: Description): Form {
  const form = formFor(model, description);
  return { ...form, classes: form.classes.length > 0 ? form.classes : description.labels, isLogits: LOGITS.includes(model) };
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
  const fields = features.map(({ name, low, high }, i) => fieldOf(name, inputs[i] as HTMLInputElement, `${low} to ${high}`));
  const element = made("div");
  const press = (pressed: number): void => buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === pressed)));
  const fill = (example: number): void => {
    inputs.forEach((input, i) => (input.value = String(examples[example]?.values[i])));
    changed(element);
    press(example);
  };
  const buttons = examples.map((each, i) =>
    made("button", { type: "button", textContent: `Example: ${each.class}`, onclick: () => fill(i) }),
  );
  element.addEventListener("input", () => press(-1)); // typed over: no example any more
  fill(0);
  element.append(
    made("p", { className: "quiet", textContent: "Choose an example, or type your own values." }),
    made("div", { className: "digits" }, ...buttons),
    made("div", { className: "fields" }, ...fields),
    made("p", { className: "quiet", textContent: `Data: ${source}` }),
  );
  const numbers = (): number[] | Missing => {
    const values = inputs.map((input) => input.valueAsNumber); // NaN for what is none, and for more than a number holds
    const wrong = values.findIndex((value) => !Number.isFinite(value));
    if (wrong < 0) return values;
    const { name, low, high } = features[wrong] as Table["features"][number];
    return new Missing(`${name}: a number is needed; the data set has ${low} to ${high}.`, inputs[wrong]);
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
  const area = numbersArea("numbers", 6);
  const shape = inputShape.length > 1 ? ` (shape ${inputShape.join(" x ")})` : "";
  const hint = `One sample, with commas or spaces between its numbers. ${size} numbers${shape} are encrypted; a model of tables makes them from its columns.`;
  const element = made("div", { className: "fields wide" }, fieldOf("Numbers", area, hint));
  const numbers = (): number[] | Missing => {
    const values = numbersIn(area);
    if (typeof values === "string") return new Missing(`${values} is not a number.`, area);
    return values.length > 0 ? values : new Missing(`Numbers are needed, ${size} of them.`, area);
  };
  return { element, numbers, classes: [] };
}
