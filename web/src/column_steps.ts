// Steps on a table of numbers, column by column or sample by sample, and what brings values into the range that is encrypted:
// models/client_steps/columns.py.

import { mapped, roundHalfEven, searchSorted, table, type Tensor, tensor } from "./arrays.js";
import { broadcast, clip, columnwise, type InputStep, MOST_COLUMNS, NAMELESS, picked, type Run } from "./columns.js";
import { demand, entries, type Fields, flag, indices, integer, real, reals, text, vector } from "./fields.js";

const SLACK = 1e-9; // of a range: values beyond it by less count as its end without a word

export const COLUMN_STEPS: Readonly<Record<string, (given: Fields) => InputStep>> = {
  Impute: (given) => {
    const fill = vector(given["fill"]);
    return { run: columnwise(fill.length, (value, c) => (Number.isNaN(value) ? (fill[c] as number) : value)) };
  },

  Complete: (given) => {
    const names = entries(given["names"], MOST_COLUMNS).map(text);
    const columns = indices(given["columns"], 0);
    demand(columns.length === names.length, "a name for each column");
    const choose = picked(columns, (value) => value);
    return {
      run: (x, unfit) => {
        const found = tensor(x);
        if (!choose(found, unfit).data.some(Number.isNaN)) return found;
        const width = found.shape[1] as number;
        return unfit.taken(
          found,
          (value, i) => Number.isNaN(value) && columns.includes(i % width),
          () => 0,
        );
      },
    };
  },

  Standardise: (given) => {
    const [offset, scale] = [vector(given["offset"]), vector(given["scale"])];
    demand(offset.length === scale.length, "an offset and a scale for each column");
    return { run: columnwise(offset.length, (value, c) => (value - (offset[c] as number)) * (scale[c] as number)) };
  },

  Divide: (given) => {
    const [offset, divisor] = [vector(given["offset"]), vector(given["divisor"])];
    demand(
      offset.length === divisor.length && divisor.every((each) => each !== 0),
      "an offset and a divisor other than zero for each column",
    );
    return { run: columnwise(offset.length, (value, c) => (value - (offset[c] as number)) / (divisor[c] as number)) };
  },

  Normalise: (given) => {
    const norm = text(given["norm"]);
    demand(["l1", "l2", "max"].includes(norm), "one of the norms l1, l2, max");
    return { run: (x) => normalised(tensor(x), norm) };
  },

  // Column j with sizes[j] > 0 holds category numbers and becomes that many columns of 0 and 1.
  OneHot: (given) => {
    const sizes = indices(given["sizes"], 0);
    const total = sizes.reduce((sum, size) => sum + Math.max(size, 1), 0);
    demand(total > 0 && total <= MOST_COLUMNS, `1 to ${MOST_COLUMNS} columns of categories`);
    return {
      run: (x) => oneHot(table(tensor(x), sizes.length), sizes, total),
      labels: (before) =>
        before.flatMap((label, j) => (sizes[j] === 0 ? [label] : Array.from({ length: sizes[j] as number }, (_, k) => `${label}[${k}]`))),
    };
  },

  Equal: (given) => {
    const [feature, value] = [indices(given["feature"], 0), vector(given["value"])];
    demand(feature.length === value.length, "a value for each comparison");
    return { run: picked(feature, (found, b) => Number(found === value[b])), labels: NAMELESS };
  },

  Select: (given) => {
    const columns = indices(given["columns"], 0);
    return { run: picked(columns, (value) => value), labels: (before) => Array.from(columns, (column) => before[column] as string) };
  },

  Saturate: (given) => {
    const [lower, upper] = [vector(given["lower"]), vector(given["upper"])];
    demand(lower.length === upper.length, "a range for each column");
    const range = { shape: [lower.length], data: lower };
    return {
      run: columnwise(lower.length, (value, c) => clip(value, lower[c] as number, upper[c] as number)),
      outside: beyond(range, { shape: [upper.length], data: upper }),
    };
  },

  // The arrays have the shape of a sample, or one that broadcasts to it.
  Rescale: (given) => {
    const [lower, upper, offset, scale] = ["lower", "upper", "offset", "scale"].map((name) => reals(given[name])) as [
      Tensor,
      Tensor,
      Tensor,
      Tensor,
    ];
    const shape = lower.shape;
    demand(
      shape.length > 0 && [upper, offset, scale].every((each) => each.shape.join() === shape.join()),
      "a range, an offset and a scale for each column",
    );
    demand(lower.data.every((low, i) => low <= (upper.data[i] as number)) && scale.data.every((s) => s > 0), "ranges and positive scales");
    return {
      run: (x) => {
        const found = tensor(x);
        const places = broadcast(shape, found.shape);
        return mapped(found, (value, i) => {
          const at = places(i);
          return (
            (clip(value, lower.data[at] as number, upper.data[at] as number) - (offset.data[at] as number)) * (scale.data[at] as number)
          );
        });
      },
      outside: beyond(lower, upper),
    };
  },

  Round: () => ({ run: (x) => mapped(tensor(x), roundHalfEven) }),

  // Its ends are the model's own, or calibrated: then values beyond them are told.
  Quantise: (given) => {
    const [unit, low, high] = [real(given["unit"]), real(given["low"]), real(given["high"])];
    const calibrated = given["calibrated"] === undefined ? false : flag(given["calibrated"]);
    demand(unit > 0 && low <= high, "a positive unit and a range");
    const slack = calibrated ? (unit / 2) * (1 + 1e-9) : Infinity;
    return {
      run: (x) => mapped(tensor(x), (value) => clip(roundHalfEven(value / unit) * unit, low, high)),
      outside: () => (value) => value < low - slack || value > high + slack,
    };
  },

  Compare: (given) => {
    const [feature, threshold, missing] = [indices(given["feature"], 0), vector(given["threshold"], false), indices(given["missing"])];
    const [strict, single] = [flag(given["strict"]), flag(given["single"])];
    demand(
      feature.length === threshold.length && feature.length === missing.length,
      "a feature, a threshold and a direction for each comparison",
    );
    return {
      run: picked(feature, (found, b) => {
        const value = single ? Math.fround(found) : found;
        if (Number.isNaN(value)) return missing[b] as number;
        return Number(strict ? value < (threshold[b] as number) : value <= (threshold[b] as number));
      }),
    };
  },

  Bins: (given) => ({ run: bins(given) }),
};

function oneHot(x: { rows: number; columns: number; data: Float64Array }, sizes: Float64Array, total: number): Tensor {
  const data = new Float64Array(x.rows * total);
  let filled = 0;
  x.data.forEach((value, i) => {
    const size = sizes[i % x.columns] as number;
    if (size === 0) data[filled] = value;
    else if (Number.isInteger(value) && value >= 0 && value < size) data[filled + value] = 1;
    filled += Math.max(size, 1);
  });
  return { shape: [x.rows, total], data };
}

function normalised(x: Tensor, norm: string): Tensor {
  const width = x.shape[1] ?? 0;
  const lengths = Array.from({ length: x.shape[0] ?? 0 }, (_, row) => {
    const part = x.data.subarray(row * width, (row + 1) * width);
    if (norm === "max") return part.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const sum = part.reduce((total, value) => total + (norm === "l1" ? Math.abs(value) : value * value), 0);
    return norm === "l1" ? sum : Math.sqrt(sum);
  });
  return mapped(x, (value, i) => {
    const length = lengths[Math.floor(i / width)] as number;
    return value / (length > 0 ? length : 1);
  });
}

/** By more than rounding. */
function beyond(lower: Tensor, upper: Tensor): NonNullable<InputStep["outside"]> {
  const slack = lower.data.map((low, i) => SLACK * ((upper.data[i] as number) - low));
  const low = lower.data.map((each, i) => each - (slack[i] as number));
  const high = upper.data.map((each, i) => each + (slack[i] as number));
  return ({ shape }) => {
    const places = broadcast(lower.shape, shape);
    return (value, i) => {
      const at = places(i);
      return value < (low[at] as number) || value > (high[at] as number);
    };
  };
}

/** Column c: digit digit[c] of how many comparisons with its ascending thresholds fail. */
function bins(given: Fields): Run {
  const [feature, start, digit] = [indices(given["feature"], 0), indices(given["start"], 0), indices(given["digit"], 0)];
  const [threshold, radix] = [vector(given["threshold"], false), integer(given["radix"], 2)];
  const [strict, single] = [flag(given["strict"]), flag(given["single"])];
  demand(
    feature.length === digit.length && start.length === feature.length + 1,
    "a feature, a digit and a range of thresholds for each column",
  );
  demand(
    digit.every((each) => each * Math.log2(radix) < 62),
    "digits of numbers below 2^62",
  );
  demand(
    start.every((at, i) => at <= threshold.length && (i === 0 || at >= (start[i - 1] as number))),
    "ranges of the thresholds",
  );
  return picked(feature, (found, c) => {
    const edges = threshold.subarray(start[c], start[c + 1]);
    const count = searchSorted(edges, single ? Math.fround(found) : found, strict);
    return Math.floor(count / radix ** (digit[c] as number)) % radix;
  });
}
