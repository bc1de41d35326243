// A form for what any model asks for: fields for the columns of a table, a text, numbers for each of several inputs.

import type { Expected, ExpectedColumn } from "../src/index.js";
import { made } from "./elements.js";
import type { Form } from "./forms.js";
import type { WholeSample } from "./messages.js";

const MOST_FIELDS = 200; // beyond it the numbers of a table go in one field

type Field = { element: HTMLElement; value(): unknown; problem(): string | null };

type Plain = Omit<Form, "isLogits">;

/** null where the numbers that are encrypted are what the user has. */
export function expectedForm(expected: Expected): Plain | null {
  if (expected.kind === "texts") return textForm();
  if (expected.kind === "tensors")
    return formOf(
      expected.inputs.map(({ name, shape }, i) => numbersField(name, shape, i)),
      (values) => ({ x: Object.fromEntries(expected.inputs.map(({ name }, i) => [name, values[i]])) }),
    );
  if (expected.kind === "numbers") return null;
  const { columns, missing } = expected;
  if (columns.length > MOST_FIELDS && columns.every(({ categories }) => categories === undefined)) return null;
  return formOf(
    columns.map((column, i) => columnField(column, missing, i)),
    (values) => ({ x: [values] }),
  );
}

function formOf(fields: Field[], sample: (values: unknown[]) => WholeSample): Plain {
  return {
    element: made("div", { className: "fields" }, ...fields.map(({ element }) => element)),
    numbers: () => fields.map((field) => field.problem()).find((found) => found !== null) ?? sample(fields.map((field) => field.value())),
    classes: [],
  };
}

function textForm(): Plain {
  const area = made("textarea", { id: "text", rows: 4 });
  const element = made("div", {}, made("label", { htmlFor: "text", textContent: "Text" }), area);
  return { element, numbers: () => ({ x: [area.value] }), classes: [] };
}

function columnField({ name, categories, ignored }: ExpectedColumn, missing: boolean, i: number): Field {
  const id = `column-${i}`;
  const label = made("label", { htmlFor: id, textContent: missing && categories === undefined ? `${name} (may stay empty)` : name });
  if (ignored === true) return { element: made("div", { hidden: true }), value: () => 0, problem: () => null };
  if (categories !== undefined) {
    const select = made(
      "select",
      { id },
      ...categories.map((each, at) => made("option", { value: String(at), textContent: each === null ? "(missing)" : String(each) })),
    );
    return { element: made("div", {}, label, select), value: () => categories[select.selectedIndex], problem: () => null };
  }
  const input = made("input", { id, type: "number", step: "any", required: !missing, inputMode: "decimal" });
  return {
    element: made("div", {}, label, input),
    value: () => input.valueAsNumber, // NaN where nothing is filled in
    problem: () => (input.checkValidity() ? null : `${name}: a number is needed.`),
  };
}

/** Numbers of one tensor, as a sample. */
function numbersField(name: string, shape: readonly number[], i: number): Field {
  const size = shape.reduce((product, extent) => product * extent, 1);
  const id = `input-${i}`;
  const area = made("textarea", { id, rows: 3, value: Array.from({ length: size }, () => "0").join(", ") });
  const numbers = (): number[] => area.value.split(/[\s,;]+/).flatMap((word) => (word === "" ? [] : [Number(word)]));
  return {
    element: made("div", {}, made("label", { htmlFor: id, textContent: `${name}, ${size} numbers [${shape.join(", ")}]` }), area),
    value: () => ({ shape: [1, ...shape], data: Float64Array.from(numbers()) }),
    problem: () => {
      const found = numbers();
      return found.length === size && found.every(Number.isFinite) ? null : `${name}: ${size} numbers are needed.`;
    },
  };
}
