// Steps before encryption: what models/client_steps does, from the user's table to the numbers that are encrypted.

import { made, mapped, roundHalfEven, type Samples, searchSorted, table, type Tensor, tensor } from "./arrays.js";
import { broadcast, clip, columnwise, type InputStep, picked } from "./columns.js";
import { ShapeError, UnsupportedError } from "./errors.js";
import { demand, entries, type Fields, fields, flag, indices, integer, real, reals, text, vector } from "./fields.js";
import { positions, thermometer } from "./grids.js";

const MOST_STEPS = 1000;
const MOST_COLUMNS = 2 ** 20;
const DEEPEST = 8;

const FIRST = new Set(["Columns", "Categories"]);
const KNOWN_TO_PYTHON = ["Texts", "Tensors", "Power", "Quantiles", "Function", "Splines"];

/** UnsupportedError for steps that only the Python client does. */
export function inputSteps(value: unknown, depth = 0): { steps: InputStep[]; names: string[] } {
  demand(depth < DEEPEST, `steps nested at most ${DEEPEST} deep`);
  const names: string[] = [];
  const steps = entries(value, MOST_STEPS).map((entry, i) => {
    const given = fields(entry);
    const name = text(given["step"]);
    demand(!FIRST.has(name) || (i === 0 && depth === 0), "a table's columns checked in the first step, and there alone");
    names.push(name);
    const make = KINDS[name];
    if (make === undefined) {
      demand(KNOWN_TO_PYTHON.includes(name), "known steps");
      throw new UnsupportedError(`model: its step '${name}' before encryption is not in this client; use the Python client`);
    }
    return make(given, depth);
  });
  return { steps, names };
}

const KINDS: Readonly<Record<string, (given: Fields, depth: number) => InputStep>> = {
  Columns: (given) => {
    const count = integer(given["count"], 1, MOST_COLUMNS);
    const [names, missing] = [columnNames(given["names"], count), flag(given["missing"])];
    return (x) => checkedTable(tensor(x), count, names, missing);
  },

  // Column columns[i] as the number of its category in known[i].
  Categories: (given) => {
    const count = integer(given["count"], 1, MOST_COLUMNS);
    const [names, missing] = [columnNames(given["names"], count), flag(given["missing"])];
    const columns = indices(given["columns"], 0);
    const known = entries(given["known"], MOST_COLUMNS).map((each) => new Map(entries(each).map((category, i) => [category, i])));
    const unseen = text(given["unseen"]);
    demand(columns.length === known.length && columns.every((c) => c < count), "known categories for each encoded column");
    demand(unseen === "refuse" || unseen === "ignore", "a rule for unseen categories: refuse or ignore");
    return (x) => {
      const rows = (Array.isArray(x) ? x : []).map((row) => {
        if (!Array.isArray(row) || row.length !== count) throw new ShapeError(`input: expected rows of ${count} columns`);
        return [...row] as unknown[];
      });
      if (rows.length === 0) throw new ShapeError("input: expected rows as lists, because columns of this model have categories");
      columns.forEach((column, i) => {
        const numbers = known[i] as Map<unknown, number>;
        rows.forEach((row, at) => {
          const found = numbers.size === 0 ? 0 : numbers.get(row[column]);
          if (found === undefined && unseen === "refuse")
            throw new ShapeError(
              `input: column '${names[column]}' has a category that the training data had not (row ${at}); ` +
                `expected one of [${[...numbers.keys()]
                  .slice(0, 8)
                  .map((each) => JSON.stringify(each))
                  .join(", ")}]`,
            );
          row[column] = found ?? -1;
        });
      });
      return checkedTable(tensor(rows), count, names, missing);
    };
  },

  Impute: (given) => {
    const fill = vector(given["fill"]);
    return columnwise(fill.length, (value, c) => (Number.isNaN(value) ? (fill[c] as number) : value));
  },

  Complete: (given) => {
    const names = entries(given["names"]).map(text);
    const columns = indices(given["columns"], 0);
    demand(columns.length === names.length, "a name for each column");
    return (x) => {
      const found = tensor(x);
      const width = found.shape[1] ?? 0;
      columns.forEach((column, i) => {
        for (let at = column; at < found.data.length; at += width)
          if (Number.isNaN(found.data[at]))
            throw new ShapeError(
              `input: column '${names[i]}' has missing values (NaN), which are replaced in other columns only; replace them first`,
            );
      });
      return found;
    };
  },

  Standardise: (given) => {
    const [offset, scale] = [vector(given["offset"]), vector(given["scale"])];
    demand(offset.length === scale.length, "an offset and a scale for each column");
    return columnwise(offset.length, (value, c) => (value - (offset[c] as number)) * (scale[c] as number));
  },

  Normalise: (given) => {
    const norm = text(given["norm"]);
    demand(["l1", "l2", "max"].includes(norm), "one of the norms l1, l2, max");
    return (x) => {
      const found = tensor(x);
      const width = found.shape[1] ?? 0;
      const lengths = Array.from({ length: found.shape[0] ?? 0 }, (_, row) => {
        const part = found.data.subarray(row * width, (row + 1) * width);
        if (norm === "max") return part.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
        const sum = part.reduce((total, value) => total + (norm === "l1" ? Math.abs(value) : value * value), 0);
        return norm === "l1" ? sum : Math.sqrt(sum);
      });
      return mapped(found, (value, i) => {
        const length = lengths[Math.floor(i / width)] as number;
        return value / (length > 0 ? length : 1);
      });
    };
  },

  // Column j with sizes[j] > 0 holds category numbers and becomes that many columns of 0 and 1.
  OneHot: (given) => {
    const sizes = indices(given["sizes"], 0);
    const total = sizes.reduce((sum, size) => sum + Math.max(size, 1), 0);
    demand(total > 0 && total <= MOST_COLUMNS, `1 to ${MOST_COLUMNS} columns of categories`);
    const source: [number, number][] = [...sizes].flatMap((size, j) =>
      size === 0 ? [[j, -1] as [number, number]] : Array.from({ length: size }, (_, k) => [j, k] as [number, number]),
    );
    return (x) => {
      const { rows, columns, data } = table(tensor(x), sizes.length);
      return made(rows, source.length, (row, c) => {
        const [column, category] = source[c] as [number, number];
        const value = data[row * columns + column] as number;
        return category < 0 ? value : Number(value === category);
      });
    };
  },

  Equal: (given) => {
    const [feature, value] = [indices(given["feature"], 0), vector(given["value"])];
    demand(feature.length === value.length, "a value for each comparison");
    return picked(feature, (found, b) => Number(found === value[b]));
  },

  Select: (given) => picked(indices(given["columns"], 0), (value) => value),

  Saturate: (given) => {
    const [lower, upper] = [vector(given["lower"]), vector(given["upper"])];
    demand(lower.length === upper.length, "a range for each column");
    return columnwise(lower.length, (value, c) => clip(value, lower[c] as number, upper[c] as number));
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
      [upper, offset, scale].every((each) => each.shape.join() === shape.join()),
      "a range, an offset and a scale for each column",
    );
    demand(lower.data.every((low, i) => low <= (upper.data[i] as number)) && scale.data.every((s) => s > 0), "ranges and positive scales");
    return (x) => {
      const found = tensor(x);
      const places = broadcast(shape, found.shape);
      return mapped(found, (value, i) => {
        const at = places(i);
        return (clip(value, lower.data[at] as number, upper.data[at] as number) - (offset.data[at] as number)) * (scale.data[at] as number);
      });
    };
  },

  Round: () => (x) => mapped(tensor(x), roundHalfEven),

  Quantise: (given) => quantise(given),

  Compare: (given) => {
    const [feature, threshold, missing] = [indices(given["feature"], 0), vector(given["threshold"], false), indices(given["missing"], 0)];
    const [strict, single] = [flag(given["strict"]), flag(given["single"])];
    demand(
      feature.length === threshold.length && feature.length === missing.length,
      "a feature, a threshold and a direction for each comparison",
    );
    return picked(feature, (found, b) => {
      const value = single ? Math.fround(found) : found;
      if (Number.isNaN(value)) return missing[b] as number;
      return Number(strict ? value < (threshold[b] as number) : value <= (threshold[b] as number));
    });
  },

  Bins: (given) => {
    const [feature, start, digit] = [indices(given["feature"], 0), indices(given["start"], 0), indices(given["digit"], 0)];
    const [threshold, radix] = [vector(given["threshold"], false), integer(given["radix"], 2)];
    const [strict, single] = [flag(given["strict"]), flag(given["single"])];
    demand(
      feature.length === digit.length && start.length === feature.length + 1,
      "a feature, a digit and a range of thresholds for each column",
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
  },

  Thermometer: thermometer,

  Positions: positions,

  Project: (given) => {
    const [offset, matrix] = [vector(given["offset"]), reals(given["matrix"])];
    const outputs = matrix.shape[1] ?? 0;
    demand(matrix.shape.length === 2 && matrix.shape[0] === offset.length && outputs > 0, "a matrix and an offset for each column");
    return (x) => {
      const { rows, columns, data } = table(tensor(withoutMissing(x, "a projection")), offset.length);
      return made(rows, outputs, (row, output) => {
        let sum = 0;
        for (let c = 0; c < columns; ++c)
          sum += ((data[row * columns + c] as number) - (offset[c] as number)) * (matrix.data[c * outputs + output] as number);
        return sum;
      });
    };
  },

  Polynomials: (given) => {
    const powers = reals(given["powers"]);
    const width = powers.shape[1] ?? 0;
    demand(
      powers.shape.length === 2 && width > 0 && powers.data.every((p) => Number.isInteger(p) && p >= 0 && p <= 1000),
      "powers of 0 to 1000",
    );
    return (x) => {
      const { rows, columns, data } = table(tensor(withoutMissing(x, "a polynomial")), width);
      return made(rows, powers.shape[0] as number, (row, output) => {
        let product = 1;
        for (let c = 0; c < columns; ++c) {
          const power = powers.data[output * columns + c] as number;
          if (power !== 0) product *= (data[row * columns + c] as number) ** power;
        }
        return product;
      });
    };
  },

  Binarise: (given) => {
    const threshold = vector(given["threshold"], false);
    const step = columnwise(threshold.length, (value, c) => Number(value > (threshold[c] as number)));
    return (x) => step(withoutMissing(x, "a threshold"));
  },

  Present: () => (x) => withoutMissing(x, "the model"),

  Append: (given, depth) => {
    const columns = indices(given["columns"], 0);
    const { steps } = inputSteps(given["steps"], depth + 1);
    const choose = picked(columns, (value) => value);
    return (x) => {
      const found = tensor(x);
      const part = steps.reduce((value: Tensor, step) => step(value), choose(found));
      const [width, more] = [found.shape[1] as number, part.shape[1] as number];
      return made(
        found.shape[0] as number,
        width + more,
        (row, c) => (c < width ? found.data[row * width + c] : part.data[row * more + c - width]) as number,
      );
    };
  },
};

/** To multiples of unit in [low, high], halves to the even one; before encryption and after decryption. */
export function quantise(given: Fields): (x: Samples | unknown[]) => Tensor {
  const [unit, low, high] = [real(given["unit"]), real(given["low"]), real(given["high"])];
  demand(unit > 0 && low <= high, "a positive unit and a range");
  return (x) => mapped(tensor(x), (value) => clip(roundHalfEven(value / unit) * unit, low, high));
}

function columnNames(value: unknown, count: number): string[] {
  if (value === null) return Array.from({ length: count }, (_, i) => `feature ${i}`);
  const names = entries(value, MOST_COLUMNS).map(text);
  demand(names.length === count, "a name for each column");
  return names;
}

function checkedTable(x: Tensor, count: number, names: string[], missing: boolean): Tensor {
  const { data } = table(x, count);
  data.forEach((value, i) => {
    if (Number.isFinite(value) || (missing && Number.isNaN(value))) return;
    const name = names[i % count];
    if (Number.isNaN(value))
      throw new ShapeError(`input: column '${name}' has missing values (NaN), which this model does not take; replace them first`);
    throw new ShapeError(`input: expected finite numbers; column '${name}' has infinite ones`);
  });
  return x;
}

function withoutMissing(x: Samples | unknown[], step: string): Tensor {
  const found = tensor(x);
  const bad = found.data.findIndex(Number.isNaN);
  const width = found.shape[1] ?? 1;
  if (bad >= 0)
    throw new ShapeError(
      `input: ${step} takes no missing values (NaN), got one in row ${Math.floor(bad / width)}, in column ${bad % width} of those that it takes; ` +
        "replace them first",
    );
  return found;
}
