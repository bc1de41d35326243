// The first step of a model of tables: what the user has, checked, as numbers [samples, columns]. models/client_steps/first.py.

import { table, type Tensor, tensor } from "./arrays.js";
import { type FirstStep, MOST_COLUMNS } from "./columns.js";
import { ShapeError } from "./errors.js";
import { demand, entries, type Fields, flag, indices, integer, isLabel, type Label, text } from "./fields.js";

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

/** Column columns[i] as the number of its category in known[i]; one without known categories is not looked at and becomes 0. */
export function categories(given: Fields): FirstStep {
  const count = integer(given["count"], 1, MOST_COLUMNS);
  const [names, missing, unseen] = [columnNames(given["names"], count), flag(given["missing"]), text(given["unseen"])];
  const columns = indices(given["columns"], 0);
  const known = entries(given["known"], MOST_COLUMNS).map(knownOnes);
  demand(columns.length === known.length && columns.every((c) => c < count), "known categories for each encoded column");
  demand(unseen === "refuse" || unseen === "ignore", "a rule for unseen categories: refuse or ignore");
  const numbers = known.map((each) => new Map(each.map((category, i) => [comparable(category), i])));
  const asNumbers = (rows: unknown[][], i: number): void => {
    const [column, number] = [columns[i] as number, numbers[i] as Map<unknown, number>];
    rows.forEach((row, at) => {
      const found = number.size === 0 ? 0 : number.get(comparable(row[column]));
      if (found === undefined && unseen === "refuse")
        throw new ShapeError(
          `input: column '${names[column]}' has a category that the training data had not (row ${at}); ` +
            `expected one of [${shown(known[i] as Label[])}]`,
        );
      row[column] = found ?? -1;
    });
  };
  const expected = names.map((name) => ({ name }));
  columns.forEach((column, i) => {
    const each = known[i] as Label[];
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

function knownOnes(value: unknown): Label[] {
  return entries(value, MOST_COLUMNS).map((category) => {
    demand(isLabel(category), "categories that are texts and numbers");
    return typeof category === "string" ? text(category) : category;
  });
}

/** Python's true is 1. */
function comparable(category: unknown): unknown {
  return typeof category === "boolean" ? Number(category) : category;
}

function shown(known: Label[]): string {
  const more = known.length > MOST_SHOWN ? [`and ${known.length - MOST_SHOWN} more`] : [];
  return [...known.slice(0, MOST_SHOWN).map((each) => JSON.stringify(each)), ...more].join(", ");
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
