// Values against a public grid, as bits or as positions: models/client_steps/grids.py.

import { searched } from "./arrays.js";
import { type InputStep, MOST_COLUMNS, picked, type Run } from "./columns.js";
import { demand, type Fields, flag, indices, integer, vector } from "./fields.js";

const MOST_GRID_POINTS = 2 ** 16 - 1; // of one feature

/** Bit i of a feature: whether its column is <= (< when strict) grid point i; in two digits where digit[f] > 0. */
export function thermometer(given: Fields): InputStep {
  const grids = readGrids(given);
  const [digit, missing] = [indices(given["digit"], 0), flag(given["missing"])];
  demand(digit.length === grids.count.length && digit.every((d) => d <= 8), "digits of at most 8 bits for each feature");
  const widths = grids.count.map((count, f) => {
    const d = digit[f] as number;
    return (d > 0 ? (count >> d) + 2 ** d - 1 : count) + Number(missing);
  });
  const run = onGrids(grids, widths, (f, value, put) => {
    const [failing, d, count] = [grids.failing(f, value), digit[f] as number, grids.count[f] as number];
    const thermometerCode = (part: number, width: number): void => {
      for (let i = 0; i < width; ++i) put(Number(part <= i));
    };
    thermometerCode(failing >> d, count >> d);
    if (d > 0) thermometerCode(failing & (2 ** d - 1), 2 ** d - 1);
    if (missing) put(Number(Number.isNaN(value)));
  });
  return { run };
}

/** Digits of `bits` bits, the lowest first, of each column's position on its grid. */
export function positions(given: Fields): InputStep {
  const grids = readGrids(given);
  const [bits, missing] = [integer(given["bits"], 1, 16), flag(given["missing"])];
  const digits = grids.count.map((count) => Math.ceil((32 - Math.clz32(count)) / bits));
  const run = onGrids(
    grids,
    digits.map((each) => each + Number(missing)),
    (f, value, put) => {
      const absent = missing && Number.isNaN(value);
      const position = absent ? 0 : grids.failing(f, value);
      for (let i = 0; i < (digits[f] as number); ++i) put((position >> (bits * i)) & (2 ** bits - 1));
      if (missing) put(Number(absent));
    },
  );
  return { run };
}

interface Grids {
  feature: Float64Array;
  count: Float64Array;
  single: boolean;
  /** How many comparisons of a value with the points of a feature fail; NaN comes after all points. */
  failing: (feature: number, value: number) => number;
}

/** Points of a feature are low + spacing i, i < count; where spacing is 0 they are the next `count` of `points`. */
function readGrids(given: Fields): Grids {
  const [feature, count] = [indices(given["feature"], 0), indices(given["count"], 1)];
  const [low, spacing, explicit] = [vector(given["low"]), vector(given["spacing"]), vector(given["points"])];
  const [strict, single] = [flag(given["strict"]), flag(given["single"])];
  demand(
    [count, low, spacing].every((each) => each.length === feature.length),
    "a column and a grid for each feature",
  );
  demand(spacing.every((s) => s >= 0) && count.every((c) => c <= MOST_GRID_POINTS), `ascending grids of 1 to ${MOST_GRID_POINTS} points`);
  let used = 0;
  const first = count.map((n, f) => (spacing[f] === 0 ? (used += n) - n : 0));
  demand(used === explicit.length, "as many explicit points as grids without a step have");
  const failing = (f: number, value: number): number => {
    const [start, step, from] = [low[f] as number, spacing[f] as number, first[f] as number];
    const point = step === 0 ? (i: number) => explicit[from + i] as number : (i: number) => start + step * i;
    return searched(count[f] as number, point, value, strict);
  };
  return { feature, count, single, failing };
}

/** `code` puts widths[f] numbers for a value of feature f. */
function onGrids(
  { feature, single }: Grids,
  widths: Float64Array,
  code: (feature: number, value: number, put: (bit: number) => void) => void,
): Run {
  const width = widths.reduce((sum, each) => sum + each, 0);
  demand(width > 0 && width <= MOST_COLUMNS, `1 to ${MOST_COLUMNS} numbers`);
  const choose = picked(feature, (value) => (single ? Math.fround(value) : value));
  return (x, unfit) => {
    const columns = choose(x, unfit);
    const data = new Float64Array((columns.shape[0] as number) * width);
    let filled = 0;
    columns.data.forEach((value, i) => code(i % feature.length, value, (bit) => (data[filled++] = bit)));
    return { shape: [columns.shape[0] as number, width], data };
  };
}
