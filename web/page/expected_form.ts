// A form for what any model asks for: fields for the columns of a table, a text, numbers for each of several inputs.

import type { Expected, ExpectedColumn } from "../src/index.js";
import { made } from "./elements.js";
import { fieldOf, numbersArea, numbersIn } from "./fields.js";
import type { WholeSample } from "./messages.js";
import { type Form, Missing } from "./missing.js";

const MOST_FIELDS = 200; // beyond it the numbers of a table go in one field

type Field = { element: HTMLElement; value(): unknown; problem(): Missing | null };

type Plain = Omit<Form, "isLogits">;

/** null where the numbers that are encrypted are what the user has. */
export function expectedForm(expected: Expected): Plain | null {
  if (expected.kind === "texts") return textForm();
  if (expected.kind === "tensors")
    return formOf(
      expected.inputs.map(({ name, shape }, i) => numbersField(name, shape, i)),
      (values) => ({ x: Object.fromEntries(expected.inputs.map(({ name }, i) => [name, values[i]])) }),
      "fields wide",
    );
  if (expected.kind === "numbers") return null;
  const { columns, missing } = expected;
  if (columns.length > MOST_FIELDS && columns.every(({ categories }) => categories === undefined)) return null;
  const form = formOf(
    columns.map((column, i) => columnField(column, missing, i)),
    (values) => ({ x: [values] }),
  );
  const note = made("p", { className: "quiet", textContent: "Leave a number empty if you do not know it." });
  const mayMiss = missing && columns.some(({ categories, ignored }) => categories === undefined && ignored !== true);
  return mayMiss ? { ...form, element: made("div", {}, note, form.element) } : form;
}

function formOf(fields: Field[], sample: (values: unknown[]) => WholeSample, className = "fields"): Plain {
  return {
    element: made("div", { className }, ...fields.map(({ element }) => element)),
    numbers: () => fields.map((field) => field.problem()).find((found) => found !== null) ?? sample(fields.map((field) => field.value())),
    classes: [],
  };
}

function textForm(): Plain {
  const area = made("textarea", { id: "text", rows: 4, required: true });
  const element = made("div", { className: "fields wide" }, fieldOf("Text", area));
  const numbers = (): WholeSample | Missing => (area.value.trim() === "" ? new Missing("Write a text first.", area) : { x: [area.value] });
  return { element, numbers, classes: [] };
}

function columnField({ name, categories, ignored }: ExpectedColumn, missing: boolean, i: number): Field {
  const id = `column-${i}`;
  if (ignored === true) return { element: made("div", { hidden: true }), value: () => 0, problem: () => null };
  if (categories !== undefined) {
    const options = categories.map((each, at) =>
      made("option", { value: String(at), textContent: each === null ? "(missing)" : String(each) }),
    );
    const select = made("select", { id, required: true }, made("option", { value: "", textContent: "Choose one" }), ...options);
    return {
      element: fieldOf(name, select),
      value: () => categories[Number(select.value)],
      problem: () => (select.value === "" ? new Missing(`${name}: choose one of the list.`, select) : null),
    };
  }
  const input = made("input", { id, type: "number", step: "any", required: !missing, inputMode: "decimal" });
  return {
    element: fieldOf(name, input),
    value: () => input.valueAsNumber, // NaN where nothing is filled in
    problem: () => (input.checkValidity() ? null : new Missing(`${name}: a number is needed.`, input)),
  };
}

/** Numbers of one tensor, as a sample. */
function numbersField(name: string, shape: readonly number[], i: number): Field {
  const size = shape.reduce((product, extent) => product * extent, 1);
  const area = numbersArea(`input-${i}`, 3);
  const ordered = shape.length > 1 ? `${size} numbers (shape ${shape.join(" x ")})` : `${size} numbers`;
  return {
    element: fieldOf(`${name}, ${ordered}`, area),
    value: () => ({ shape: [1, ...shape], data: Float64Array.from(numbersIn(area) as number[]) }),
    problem: () => {
      const found = numbersIn(area);
      if (typeof found === "string") return new Missing(`${name}: ${found} is not a number.`, area);
      return found.length === size ? null : new Missing(`${name}: ${size} numbers are needed, and there are ${found.length}.`, area);
    },
  };
}
