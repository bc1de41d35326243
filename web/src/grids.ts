// Values against a public grid, as bits or as positions: models/client_steps/grids.py, thermometer.py and positions.py.

import { searchSorted } from "./arrays.js";
import { type InputStep, picked } from "./columns.js";
import { demand, type Fields, flag, indices, integer, vector } from "./fields.js";

const MOST_POINTS = 2 ** 20;
const MOST_GRID_POINTS = 2 ** 16 - 1; // of one feature

/** Bit i of a feature: whether its column is <= (< when strict) grid point i; in two digits where digit[f] > 0. */
export function thermometer(given: Fields): InputStep {
  const grids = readGrids(given);
  const [digit, missing] = [indices(given["digit"], 0), flag(given["missing"])];
  demand(digit.length === grids.points.length && digit.every((d) => d <= 8), "digits of at most 8 bits for each feature");
  return onGrids(grids, (number, value) => {
    const failing = searchSorted(grids.points[number] as Float64Array, value, grids.strict);
    const [d, count] = [digit[number] as number, (grids.points[number] as Float64Array).length];
    const low = 2 ** d - 1;
    const pieces: [number, number][] =
      d === 0
        ? [[failing, count]]
        : [
            [failing >> d, count >> d],
            [failing & low, low],
          ];
    const bits = pieces.flatMap(([part, width]) => Array.from({ length: width }, (_, i) => Number(part <= i)));
    return missing ? [...bits, Number(Number.isNaN(value))] : bits;
  });
}

/** Digits of `bits` bits, the lowest first, of each column's position on its grid. */
export function positions(given: Fields): InputStep {
  const grids = readGrids(given);
  const [bits, missing] = [integer(given["bits"], 1, 16), flag(given["missing"])];
  return onGrids(grids, (number, value) => {
    const points = grids.points[number] as Float64Array;
    const absent = missing && Number.isNaN(value);
    const position = absent ? 0 : searchSorted(points, value, grids.strict);
    const width = Math.ceil((32 - Math.clz32(points.length)) / bits);
    const digits = Array.from({ length: width }, (_, i) => (position >> (bits * i)) & (2 ** bits - 1));
    return missing ? [...digits, Number(absent)] : digits;
  });
}

interface Grids {
  feature: ArrayLike<number>;
  points: Float64Array[];
  strict: boolean;
  single: boolean;
}

/** Points of a feature are low + spacing i, i < count; where spacing is 0 they are the next `count` of `points`. */
function readGrids(given: Fields): Grids {
  const [feature, count] = [indices(given["feature"], 0), indices(given["count"], 1)];
  const [low, spacing, explicit] = [vector(given["low"]), vector(given["spacing"]), vector(given["points"])];
  demand(
    [count, low, spacing].every((each) => each.length === feature.length),
    "a column and a grid for each feature",
  );
  demand(spacing.every((s) => s >= 0) && count.every((c) => c <= MOST_GRID_POINTS), `ascending grids of 1 to ${MOST_GRID_POINTS} points`);
  demand(count.reduce((sum, c) => sum + c, 0) <= MOST_POINTS, `at most ${MOST_POINTS} points of grids`);
  let used = 0;
  const points = Array.from(feature, (_, i) => {
    const [n, step] = [count[i] as number, spacing[i] as number];
    if (step === 0) return explicit.slice(used, (used += n));
    return Float64Array.from({ length: n }, (_, k) => (low[i] as number) + step * k);
  });
  demand(used === explicit.length, "as many explicit points as grids without a step have");
  return { feature, points, strict: flag(given["strict"]), single: flag(given["single"]) };
}

function onGrids(grids: Grids, code: (number: number, value: number) => number[]): InputStep {
  const choose = picked(grids.feature, (value) => (grids.single ? Math.fround(value) : value));
  return (x) => {
    const columns = choose(x);
    const [rows, width] = columns.shape as [number, number];
    const coded = Array.from({ length: rows }, (_, row) =>
      Array.from({ length: width }, (_, number) => code(number, columns.data[row * width + number] as number)).flat(),
    );
    return { shape: [rows, coded[0]?.length ?? 0], data: Float64Array.from(coded.flat()) };
  };
}
