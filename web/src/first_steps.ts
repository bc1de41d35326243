// The first step of a model of tables: what the user has, checked, as numbers [samples, columns]. models/client_steps/first.py.

import { table, type Tensor, tensor } from "./arrays.js";
import { type FirstStep, MOST_COLUMNS } from "./columns.js";
import { ShapeError } from "./errors.js";
import { demand, entries, type Fields, flag, indices, integer, isLabel, type Label, real, text } from "./fields.js";

const MOST_SHOWN = 8;

export function columns(given: Fields): FirstStep {
  const count = integer(given["count"], 1, MOST_COLUMNS);
  const [names, missing] = [columnNames(given["names"], count), flag(given["missing"])];
  return {
    run: (x) => checkedTable(tensor(x), names, missing),
    labels: () => names,
    expected: { kind: "table", columns: names.map((name) => ({ name })), missing },
    noSamples: { shape: [0, count], data: new Float64Array() },
  };
}

type Category = Label | null; // null: a missing value
type Rule = number | "refuse" | null; // for unseen categories: their number, null leaves a missing value

/** Column columns[i] as the number of its category in known[i]; one without known categories is not looked at and becomes 0. */
export function categories(given: Fields): FirstStep {
  const count = integer(given["count"], 1, MOST_COLUMNS);
  const [names, missing, unseen] = [columnNames(given["names"], count), flag(given["missing"]), text(given["unseen"])];
  const columns = indices(given["columns"], 0);
  const known = entries(given["known"], MOST_COLUMNS).map(knownOnes);
  demand(columns.length === known.length && columns.every((c) => c < count), "known categories for each encoded column");
  demand(unseen === "refuse" || unseen === "ignore", "a rule for unseen categories: refuse or ignore");
  const numbers = numbersOf(given["numbers"], known).map((each, i) => new Map(each.map((n, k) => [comparable(known[i]?.[k]), n])));
  numbers.forEach((each) => {
    if (each.has(null) && !each.has("")) each.set("", each.get(null) as number | null); // what a file of text has for a missing value
  });
  const others = rules(given["others"], known.length, unseen === "refuse" ? unseen : -1);
  const asNumbers = (rows: unknown[][], i: number): void => {
    const [column, number, other] = [columns[i] as number, numbers[i] as Map<unknown, number | null>, others[i] as Rule];
    rows.forEach((row, at) => {
      const category = comparable(row[column]);
      if (number.size === 0) row[column] = 0;
      else if (number.has(category)) row[column] = number.get(category);
      else if (other !== "refuse") row[column] = other;
      else
        throw new ShapeError(
          `input: column '${names[column]}' has a category that the training data had not (row ${at}); ` +
            `expected one of [${shown(known[i] as Category[])}]`,
        );
    });
  };
  const expected = names.map((name) => ({ name }));
  columns.forEach((column, i) => {
    const each = known[i] as Category[];
    expected[column] = { name: names[column] as string, ...(each.length > 0 ? { categories: each } : { ignored: true }) };
  });
  return {
    run: (x) => {
      const rows = listedRows(x, count);
      columns.forEach((_, i) => asNumbers(rows, i));
      return checkedTable({ shape: [rows.length, count], data: tensor(rows).data }, names, missing);
    },
    labels: () => names,
    expected: { kind: "table", columns: expected, missing },
    noSamples: [],
  };
}

function knownOnes(value: unknown): Category[] {
  return entries(value, MOST_COLUMNS).map((category) => {
    demand(category === null || isLabel(category), "categories that are texts and numbers");
    return typeof category === "string" ? text(category) : category;
  });
}

/** Of each known category; without any 0, 1, .. */
function numbersOf(value: unknown, known: Category[][]): (number | null)[][] {
  const given = value === undefined ? [] : entries(value, MOST_COLUMNS).map((each) => entries(each, MOST_COLUMNS).map(numberOrMissing));
  if (given.length === 0) return known.map((each) => each.map((_, i) => i));
  demand(given.length === known.length && given.every((each, i) => each.length === known[i]?.length), "a number for each known category");
  return given;
}

function rules(value: unknown, count: number, ofAll: Rule): Rule[] {
  const given = value === undefined ? [] : entries(value, MOST_COLUMNS).map((each) => (each === "refuse" ? each : numberOrMissing(each)));
  demand(given.length === 0 || given.length === count, "a rule for unseen categories of each column");
  return given.length === 0 ? Array.from({ length: count }, () => ofAll) : given;
}

function numberOrMissing(value: unknown): number | null {
  return value === null ? value : real(value);
}

/** Python's true is 1; what is missing is null. */
function comparable(category: unknown): unknown {
  if (category === undefined || Number.isNaN(category)) return null;
  return typeof category === "boolean" ? Number(category) : category;
}

function shown(known: Category[]): string {
  const more = known.length > MOST_SHOWN ? [`and ${known.length - MOST_SHOWN} more`] : [];
  return [...known.slice(0, MOST_SHOWN).map((each) => (each === null ? "a missing value" : JSON.stringify(each))), ...more].join(", ");
}

function listedRows(x: unknown, count: number): unknown[][] {
  if (!Array.isArray(x)) throw new ShapeError("input: expected rows as lists, because columns of this model have categories");
  return x.map((row) => {
    if (!Array.isArray(row) || row.length !== count) throw new ShapeError(`input: expected rows of ${count} columns`);
    return [...row] as unknown[];
  });
}

function columnNames(value: unknown, count: number): string[] {
  if (value === null) return numbered(count);
  const names = entries(value, MOST_COLUMNS).map(text);
  demand(names.length === count, "a name for each column");
  return names;
}

/** What to call columns without names. */
export function numbered(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `feature ${i}`);
}

function checkedTable(x: Tensor, names: string[], missing: boolean): Tensor {
  const { data } = table(x, names.length);
  data.forEach((value, i) => {
    if (Number.isFinite(value) || (missing && Number.isNaN(value))) return;
    const name = names[i % names.length];
    if (Number.isNaN(value))
      throw new ShapeError(`input: column '${name}' has missing values (NaN), which this model does not take; replace them first`);
    throw new ShapeError(`input: expected finite numbers; column '${name}' has infinite ones`);
  });
  return x;
}
