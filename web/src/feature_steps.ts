// Steps that make new features of several columns, or bend single ones: models/client_steps/features.py.

import { interpolated, made, mapped, remainder, searchSorted, table, type Tensor, tensor } from "./arrays.js";
import { clip, columnwise, type InputStep, NAMELESS, ofColumns, type Run } from "./columns.js";
import { chosen, demand, type Fields, flag, integer, integers, reals, text, vector } from "./fields.js";
import { NUMPY_FUNCTIONS, type OfOne } from "./functions.js";
import { normalValue } from "./normal.js";

const LARGEST_POWER = 1000;
const LARGEST_DEGREE = 16;
const SMALLEST = 2 ** -1022; // positive number of full precision
const EDGE = 1e-7; // of a share: values so near to the ends of the training data count as the ends

export const FEATURE_STEPS: Readonly<Record<string, (given: Fields) => InputStep>> = {
  Project: (given) => {
    const [offset, matrix] = [vector(given["offset"]), reals(given["matrix"])];
    const outputs = matrix.shape[1] ?? 0;
    demand(matrix.shape.length === 2 && matrix.shape[0] === offset.length && outputs > 0, "a matrix and an offset for each column");
    const run: Run = (x, unfit) => {
      const { rows, columns, data } = table(unfit.withoutMissing(tensor(x)), offset.length);
      return made(rows, outputs, (row, output) => {
        let sum = 0;
        for (let c = 0; c < columns; ++c)
          sum += ((data[row * columns + c] as number) - (offset[c] as number)) * (matrix.data[c * outputs + output] as number);
        return sum;
      });
    };
    return { run, labels: NAMELESS, rounds: 1 + Math.floor(offset.length / 16) };
  },

  Polynomials: (given) => {
    const powers = integers(given["powers"], 0);
    const width = powers.shape[1] ?? 0;
    demand(powers.shape.length === 2 && width > 0 && powers.data.every((p) => p <= LARGEST_POWER), `powers of 0 to ${LARGEST_POWER}`);
    const run: Run = (x, unfit) => {
      const { rows, columns, data } = table(unfit.withoutMissing(tensor(x)), width);
      const found = made(rows, powers.shape[0] as number, (row, output) => {
        let product = 1;
        for (let c = columns - 1; c >= 0; --c) {
          const power = powers.data[output * columns + c] as number;
          for (let factor = 0; factor < power; ++factor) product *= data[row * columns + c] as number;
        }
        return product;
      });
      return unfit.withoutInfinite(found);
    };
    const largest = new Float64Array(width);
    powers.data.forEach((power, i) => (largest[i % width] = Math.max(largest[i % width] as number, power)));
    return { run, labels: NAMELESS, rounds: 1 + largest.reduce((sum, power) => sum + power, 0) };
  },

  // box-cox of positive values, yeo-johnson of any; missing values stay.
  Power: (given) => {
    const [method, exponent] = [text(given["method"]), vector(given["exponent"])];
    demand(method === "box-cox" || method === "yeo-johnson", "a method: box-cox or yeo-johnson");
    const one = method === "box-cox" ? boxCox : yeoJohnson;
    const transform = columnwise(exponent.length, (value, c) => one(value, exponent[c] as number));
    const run: Run = (x, unfit) => {
      const found = tensor(x);
      const positive =
        method === "box-cox"
          ? unfit.taken(
              found,
              (value) => value <= 0,
              () => SMALLEST,
            )
          : found;
      return unfit.withoutInfinite(transform(positive, unfit));
    };
    return { run };
  },

  Quantiles: (given) => {
    const [quantiles, references, output] = [reals(given["quantiles"]), vector(given["references"]), text(given["output"])];
    const [count, columns] = [references.length, quantiles.shape[1] ?? 0];
    demand(quantiles.shape.length === 2 && quantiles.shape[0] === count && columns > 0, "a share for each quantile");
    demand(count > 0 && ascending(references), "ascending shares");
    const points = columnsOf(quantiles);
    demand(points.every(ascending), "ascending quantiles");
    demand(output === "uniform" || output === "normal", "an output: uniform or normal");
    const shares = points.map((each) => shareBelow(each, references, output === "normal" ? EDGE : 0));
    const run = columnwise(columns, (value, c) => {
      const share = (shares[c] as OfOne)(value);
      if (Number.isNaN(value)) return value;
      return output === "uniform" ? share : normalValue(clip(share, EDGE - Number.EPSILON, 1 - (EDGE - Number.EPSILON)));
    });
    return { run };
  },

  // Missing values stay; outside of its domain a function gives missing ones.
  Function: (given) => {
    const name = text(given["name"]);
    const f = chosen(NUMPY_FUNCTIONS, name, "a function that is known by name");
    return { run: (x, unfit) => unfit.withoutInfinite(mapped(tensor(x), f)) };
  },

  Splines: (given) => {
    const [knots, degree] = [reals(given["knots"]), integer(given["degree"], 0, LARGEST_DEGREE)];
    const [outside, bias] = [text(given["outside"]), flag(given["bias"])];
    const columns = knots.shape[1] ?? 0;
    demand(knots.shape.length === 2 && columns > 0 && (knots.shape[0] as number) >= 2 * degree + 2, "two base knots at least");
    const of = columnsOf(knots);
    demand(of.every(ascending), "ascending knots");
    demand(["constant", "continue", "periodic", "error"].includes(outside), "a known rule for values beyond the knots");
    const [lows, highs] = [of.map((each) => each[degree] as number), of.map((each) => each[each.length - degree - 1] as number)];
    const make = ofColumns(columns, (values, c) => splines(values, of[c] as Float64Array, degree, outside, bias));
    const run: Run = (x, unfit) => {
      const found = unfit.withoutMissing(tensor(x));
      if (outside !== "error") return make(found, unfit);
      const nearest = (value: number, i: number): number => clip(value, lows[i % columns] as number, highs[i % columns] as number);
      return make(
        unfit.taken(found, (value, i) => value !== nearest(value, i), nearest),
        unfit,
      );
    };
    return { run, labels: NAMELESS, rounds: 2 + degree };
  },

  Binarise: (given) => {
    const threshold = vector(given["threshold"], false);
    const run = columnwise(threshold.length, (value, c) => Number(value > (threshold[c] as number)));
    return { run: (x, unfit) => run(unfit.withoutMissing(tensor(x)), unfit) };
  },

  Present: () => ({ run: (x, unfit) => unfit.withoutMissing(tensor(x)) }),
};

function ascending(values: Float64Array): boolean {
  return values.every((value, i) => i === 0 || value >= (values[i - 1] as number));
}

function columnsOf({ shape, data }: Tensor): Float64Array[] {
  const [rows, columns] = shape as [number, number];
  return Array.from({ length: columns }, (_, c) => Float64Array.from({ length: rows }, (_, row) => data[row * columns + c] as number));
}

// --- power transforms. Source: [BC64], [YJ00] ---

function boxCox(x: number, exponent: number): number {
  return ofLogarithm(Math.log(x), exponent);
}

function yeoJohnson(x: number, exponent: number): number {
  if (Number.isNaN(x)) return x;
  return x >= 0 ? ofLogarithm(Math.log1p(x), exponent) : -ofLogarithm(Math.log1p(-x), 2 - exponent);
}

/** (e^(l exponent) - 1) / exponent, l where that is 0. */
function ofLogarithm(logarithm: number, exponent: number): number {
  return Math.abs(exponent) < Number.EPSILON ? logarithm : Math.expm1(exponent * logarithm) / exponent;
}

// --- quantiles ---

/** Which share of the training data lies below a value; of equal quantiles a value lies at the middle of their shares. */
function shareBelow(points: Float64Array, references: Float64Array, edge: number): OfOne {
  const [mirrored, shares] = [points.map((each) => -each).reverse(), references.map((each) => -each).reverse()];
  const [first, last] = [points[0] as number, points.at(-1) as number];
  return (x) => {
    // The lower end wins where both are the same.
    if (edge > 0 ? x - edge < first : x === first) return 0;
    if (edge > 0 ? x + edge > last : x === last) return 1;
    return 0.5 * (interpolated(x, points, references) + -interpolated(-x, mirrored, shares));
  };
}

// --- splines. Source: [PT97] algorithm A2.2 ---

/** The values of a column's splines, spline by spline. Args: knots: `degree` of them beyond either end. */
function splines(values: Float64Array, knots: Float64Array, degree: number, outside: string, bias: boolean): Float64Array[] {
  const [low, high] = [knots[degree] as number, knots[knots.length - degree - 1] as number];
  const count = knots.length - degree - 1;
  const found = Array.from({ length: count }, () => new Float64Array(values.length));
  values.forEach((given, row) => {
    const x = outside === "constant" ? clip(given, low, high) : outside === "periodic" ? low + remainder(given - low, high - low) : given;
    const piece = clip(searchSorted(knots, x, true) - 1, degree, count - 1);
    splineValues(x, knots, piece, degree).forEach((value, r) => {
      const at = piece - degree + r;
      // Beyond the ends only the outermost splines count, of degree 0 none.
      const counts = outside !== "constant" || (given < low ? at < degree : given > high ? at >= count - degree : true);
      if (counts) (found[at] as Float64Array)[row] = value;
    });
  });
  if (outside !== "periodic" || degree === 0) return bias ? found : found.slice(0, -1);
  const made = wrapped(found, degree);
  return bias ? made : made.slice(0, -1);
}

/** The last splines are the first ones, from the other end on. */
function wrapped(found: Float64Array[], degree: number): Float64Array[] {
  const last = found.slice(-degree);
  return found.slice(0, -degree).map((values, j) => (j < degree ? values.map((value, row) => value + (last[j]?.[row] as number)) : values));
}

/** The degree + 1 splines that are not zero between knots `piece` and `piece` + 1. */
function splineValues(x: number, knots: Float64Array, piece: number, degree: number): number[] {
  const values = [1];
  for (let j = 1; j <= degree; ++j) {
    let saved = 0;
    for (let r = 0; r < j; ++r) {
      const [right, left] = [knots[piece + r + 1] as number, knots[piece + r + 1 - j] as number];
      const part = right > left ? (values[r] as number) / (right - left) : 0; // of equal knots there is no piece
      values[r] = saved + (right - x) * part;
      saved = (x - left) * part;
    }
    values[j] = saved;
  }
  return values;
}
