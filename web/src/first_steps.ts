// The first step of a model of tables: what the user has, checked, as numbers [samples, columns]. models/client_steps/first.py.

import { table, type Tensor } from "./arrays.js";
import { type FirstStep, type Given, MOST_COLUMNS } from "./columns.js";
import { ShapeError } from "./errors.js";
import { demand, entries, type Fields, flag, indices, integer, isLabel, type Label, real, text } from "./fields.js";
import type { Unfit } from "./unfit.js";

const IGNORED = -1; // the number of an unseen category, of which OneHot gives zeros

export function columns(given: Fields): FirstStep {
  const count = integer(given["count"], 1, MOST_COLUMNS);
  const [names, missing] = [columnNames(given["names"], count), flag(given["missing"])];
  return {
    run: (x, unfit) => checkedTable(x, names, missing, unfit),
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
  const others = rules(given["others"], known.length, unseen === "refuse" ? unseen : IGNORED);
  const asNumbers = (rows: unknown[][], i: number, unfit: Unfit): void => {
    const [column, number, other] = [columns[i] as number, numbers[i] as Map<unknown, number | null>, others[i] as Rule];
    const codes = new Float64Array(rows.length);
    const refused = rows.map(() => false);
    rows.forEach((row, at) => {
      const category = comparable(row[column]);
      if (number.size === 0) return;
      const code = number.has(category) ? number.get(category) : other;
      refused[at] = code === "refuse" || (typeof category === "object" && category !== null); // or a list or an object, which no category is
      codes[at] = code === "refuse" ? IGNORED : (code ?? NaN);
    });
    unfit.at(() => [names[column] as string]);
    const taken = unfit.taken({ shape: [rows.length], data: codes }, (_, at) => refused[at] as boolean, Number);
    rows.forEach((row, at) => (row[column] = taken.data[at]));
  };
  const expected = names.map((name) => ({ name }));
  columns.forEach((column, i) => {
    const each = known[i] as Category[];
    expected[column] = { name: names[column] as string, ...(each.length > 0 ? { categories: each } : { ignored: true }) };
  });
  return {
    run: (x, unfit) => {
      const rows = listedRows(x, count);
      columns.forEach((_, i) => asNumbers(rows, i, unfit));
      return checkedTable(rows.length === 0 ? { shape: [0, count], data: new Float64Array() } : rows, names, missing, unfit);
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

function checkedTable(x: Given, names: string[], missing: boolean, unfit: Unfit): Tensor {
  unfit.at(() => names);
  const found = unfit.numbers(x);
  table(found, names.length);
  const finite = unfit.withoutInfinite(found);
  return missing ? finite : unfit.withoutMissing(finite);
}
