// One sample of a model: a board for digits, a form for the zoo's tables, numbers for all others.

import { board } from "./board.js";
import type { Stroke } from "./digit_image.js";
import { made } from "./elements.js";
import type { Description } from "./messages.js";
import samples from "./samples.json" with { type: "json" };

export interface Form {
  element: HTMLElement;
  /** The sample, or what is missing. */
  numbers(): number[] | string;
  /** Names of the model's outputs, as far as they are known. */
  classes: readonly string[];
}

interface Table {
  title: string;
  source: string;
  classes: string[];
  features: { name: string; low: number; high: number }[];
  examples: { class: string; values: number[] }[];
}

const DIGITS = Array.from({ length: 10 }, (_, digit) => String(digit));
const PICTURE = 28 * 28;
const TABLES: Readonly<Record<string, Table>> = samples.tables;

/** What people read in the list of models. */
export function titleOf(model: string): string {
  const title = TABLES[model]?.title ?? (model.startsWith("mnist") ? "Digits: which one is it?" : null);
  return title === null ? model : `${title} (${model})`;
}

export function formOf(model: string, { inputShape }: Description): Form {
  const table = TABLES[model];
  if (table !== undefined) return tableForm(table);
  const size = inputShape.reduce((product, extent) => product * extent, 1);
  const isPicture = size === PICTURE && (inputShape.length === 1 || inputShape.slice(-2).join() === "28,28");
  return isPicture ? board(samples.digits as unknown as Stroke[][], DIGITS) : numbersForm(inputShape, size);
}

function tableForm({ features, examples, classes, source }: Table): Form {
  const inputs = features.map(({ low, high }, i) =>
    made("input", {
      id: `feature-${i}`,
      type: "number",
      step: "any",
      min: String(low),
      max: String(high),
      required: true,
      inputMode: "decimal",
    }),
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
    const wrong = inputs.find((input) => !input.checkValidity());
    if (wrong === undefined) return inputs.map((input) => input.valueAsNumber);
    wrong.focus();
    const { name, low, high } = features[inputs.indexOf(wrong)] as Table["features"][number];
    return `${name}: a number from ${low} to ${high} is needed.`;
  };
  return { element, numbers, classes };
}

function numbersForm(inputShape: number[], size: number): Form {
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
