// Steps after decryption: what models/graph/last_steps.py and models/client_steps/answers.py do, from decrypted numbers to labels.

import { made, mapped, remainder, roundHalfEven, sizeOf, table, type Tensor } from "./arrays.js";
import { ShapeError, UnsupportedError } from "./errors.js";
import { demand, entries, type Fields, fields, flag, indices, integer, type Label, labels, real, reals, text, vector } from "./fields.js";
import { quantise } from "./input_steps.js";

export const STAGES = ["scores", "probabilities", "labels"] as const;
export type Stage = (typeof STAGES)[number];

/** Numbers, or a label for each sample (of several outputs several). */
export type Answer = Tensor | Label[] | Label[][];

export interface OutputStep {
  name: string;
  stage: Stage;
  run: (x: Tensor) => Answer;
}

const MOST_STEPS = 1000;
const MOST_LAST_STEPS = 100;
const FROM_SCORES = ["Labels", "LabelGroups", "Indicators"]; // they take scores, not probabilities
const KNOWN_TO_PYTHON = ["Members", "Curves", "Named"];

/** All that the client does after decryption. UnsupportedError for steps that only the Python client does. */
export function outputSteps(last: unknown, answers: unknown): OutputStep[] {
  const first = entries(last, MOST_LAST_STEPS).map(lastStep);
  const others = entries(answers, MOST_STEPS).map((entry): OutputStep => {
    const given = fields(entry);
    const name = text(given["step"]);
    const kind = KINDS[name];
    if (kind !== undefined) return { name, stage: kind.stage, run: kind.make(given) };
    demand(KNOWN_TO_PYTHON.includes(name), "known steps");
    throw new UnsupportedError(`model: its step '${name}' after decryption is not in this client; use the Python client`);
  });
  const stages = others.map((step) => STAGES.indexOf(step.stage));
  demand(
    stages.every((stage, i) => i === 0 || stage >= (stages[i - 1] as number)),
    `steps in the order ${STAGES.join(", ")}`,
  );
  return [...first, ...others];
}

/** Stops before the first step of a later stage. Labels come from scores, so that saturated probabilities are no ties. */
export function runOutputSteps(steps: OutputStep[], values: Tensor, until: Stage): Answer {
  const fromScores = until === "labels" && steps.some((step) => FROM_SCORES.includes(step.name));
  let answer: Answer = values;
  for (const step of steps) {
    if (fromScores && step.stage === "probabilities") continue;
    if (STAGES.indexOf(step.stage) > STAGES.indexOf(until)) break;
    if (Array.isArray(answer)) throw new ShapeError("output: expected numbers before the last step; the specification is damaged");
    answer = step.run(answer);
  }
  return answer;
}

const KINDS: Readonly<Record<string, { stage: Stage; make: (given: Fields) => (x: Tensor) => Answer }>> = {
  Quantise: { stage: "scores", make: quantise },
  Integers: { stage: "scores", make: () => (x) => mapped(x, roundHalfEven) },

  Wrap: {
    stage: "scores",
    make: (given) => {
      const [lowest, modulus] = [indices(given["lowest"]), integer(given["modulus"], 1)];
      return (x) => {
        table(x, lowest.length);
        return mapped(x, (value, i) => {
          const low = lowest[i % lowest.length] as number;
          return remainder(roundHalfEven(value) - low, modulus) + low;
        });
      };
    },
  },

  // Digits in the mixed radix of each output's row (ones at the end are skipped), the lowest first.
  Digits: {
    stage: "scores",
    make: (given) => {
      const radix = reals(given["radix"]);
      const width = radix.shape[1] ?? 0;
      demand(
        radix.shape.length === 2 && radix.data.every((base) => Number.isInteger(base) && base > 0),
        "positive radices [outputs, most digits]",
      );
      return (x) => {
        const { rows, columns, data } = table(x, radix.shape[0] as number);
        const digits = Array.from({ length: rows }, (_, row) =>
          Array.from({ length: columns }, (_, j) => {
            let rest = data[row * columns + j] as number;
            return [...radix.data.subarray(j * width, (j + 1) * width)]
              .filter((base) => base > 1)
              .map((base) => {
                const digit = remainder(rest, base);
                rest = Math.floor(rest / base);
                return digit;
              });
          }).flat(),
        );
        return { shape: [rows, digits[0]?.length ?? 0], data: Float64Array.from(digits.flat()) };
      };
    },
  },

  Combine: {
    stage: "scores",
    make: (given) => {
      const [matrix, offset] = [reals(given["matrix"]), vector(given["offset"])];
      demand(matrix.shape.length === 2 && matrix.shape[1] === offset.length, "a matrix and an offset for each output");
      return (x) => {
        const { rows, columns, data } = table(x, matrix.shape[0] as number);
        return made(rows, offset.length, (row, output) => {
          let sum = 0;
          for (let c = 0; c < columns; ++c)
            sum += (data[row * columns + c] as number) * (matrix.data[c * offset.length + output] as number);
          return sum + (offset[output] as number);
        });
      };
    },
  },

  Transform: {
    stage: "probabilities",
    make: (given) => {
      const [name, parameter, classes] = [text(given["name"]), real(given["parameter"]), flag(given["classes"])];
      const transform = TRANSFORMS[name];
      demand(transform !== undefined && parameter !== 0, "a known transform with a parameter other than 0");
      return (x) => transform(x, parameter, classes);
    },
  },

  Labels: {
    stage: "labels",
    make: (given) => {
      const [names, threshold] = [labels(given["labels"]), real(given["threshold"])];
      return (x) => {
        const columns = x.shape[1] ?? 0;
        if (x.shape.length !== 2 || names.length !== Math.max(2, columns))
          throw new ShapeError(`output: expected scores for ${names.length} labels, got ${columns} columns`);
        return bestClass(x, threshold).map((best) => names[best] as Label);
      };
    },
  },

  LabelGroups: {
    stage: "labels",
    make: (given) => {
      const [names, sizes] = [labels(given["labels"]), indices(given["sizes"], 1)];
      demand(sizes.reduce((sum, size) => sum + size, 0) === names.length, "a group for each label");
      return (x) => {
        const { rows, columns, data } = table(x, names.length);
        return Array.from({ length: rows }, (_, row) => {
          let first = 0;
          return Array.from(sizes, (size) => {
            const start = row * columns + first;
            const best = first + extreme(data.subarray(start, start + size), true);
            first += size;
            return names[best] as Label;
          });
        });
      };
    },
  },

  Indicators: {
    stage: "labels",
    make: (given) => {
      const threshold = real(given["threshold"]);
      return (x) => mapped(x, (value) => Number(value > threshold));
    },
  },

  Outliers: {
    stage: "labels",
    make: (given) => {
      const offset = real(given["offset"]);
      return (x) =>
        Array.from({ length: x.shape[0] ?? 0 }, (_, row) => ((x.data[row * (x.shape[1] ?? 1)] as number) - offset < 0 ? -1 : 1));
    },
  },

  Pick: {
    stage: "labels",
    make: (given) => {
      const names = labels(given["labels"]);
      return (x) =>
        Array.from({ length: x.shape[0] ?? 0 }, (_, row) => {
          const label = names[roundHalfEven(x.data[row * (x.shape[1] ?? 1)] as number)];
          if (label === undefined)
            throw new ShapeError("output: expected the numbers of labels; the result is of another model or was damaged");
          return label;
        });
    },
  },

  Squeeze: {
    stage: "labels",
    make: () => (x) => (x.shape.length === 2 && x.shape[1] === 1 ? { shape: [x.shape[0] as number], data: x.data } : x),
  },
};

// --- transforms of scores ---

const TRANSFORMS: Readonly<Record<string, (s: Tensor, parameter: number, classes: boolean) => Tensor>> = {
  none: (s, _, classes) => (classes && s.shape[1] === 1 ? twoClasses(s) : s),
  sigmoid: (s, _, classes) =>
    ofClasses(
      mapped(s, (value) => (value >= 0 ? 1 / (1 + Math.exp(-value)) : Math.exp(value) / (1 + Math.exp(value)))),
      classes,
    ),
  softmax: (s, slope, classes) => {
    const both = classes && s.shape[1] === 1 ? made(s.shape[0] as number, 2, (row, c) => (s.data[row] as number) * (c === 0 ? -1 : 1)) : s;
    return softmax(
      mapped(both, (value) => slope * value),
      1,
    );
  },
  shares: (s, _, classes) => ofClasses(s, classes),
  exp: (s) => mapped(s, Math.exp),
  modified_huber: (s, _, classes) =>
    ofClasses(
      mapped(s, (value) => (Math.min(Math.max(value, -1), 1) + 1) / 2),
      classes,
    ),
  isolation: (s, divisor) => mapped(s, (value) => -(2 ** (-value / divisor))),
  decision: (s) => s,
};

function twoClasses(second: Tensor): Tensor {
  return made(second.shape[0] as number, 2, (row, c) => (c === 0 ? 1 - (second.data[row] as number) : (second.data[row] as number)));
}

/** One column of a classifier is the second class; one against the rest is normalised. */
function ofClasses(transformed: Tensor, classes: boolean): Tensor {
  if (!classes) return transformed;
  const columns = transformed.shape[1] as number;
  if (columns === 1) return twoClasses(transformed);
  const totals = Array.from({ length: transformed.shape[0] as number }, (_, row) =>
    transformed.data.subarray(row * columns, (row + 1) * columns).reduce((sum, value) => sum + value, 0),
  );
  return mapped(transformed, (value, i) => {
    const total = totals[Math.floor(i / columns)] as number;
    return total > 0 ? value / total : 1 / columns;
  });
}

function bestClass(scores: Tensor, threshold: number): number[] {
  const columns = scores.shape[1] as number;
  return Array.from({ length: scores.shape[0] as number }, (_, row) =>
    columns === 1
      ? Number((scores.data[row] as number) > threshold)
      : extreme(scores.data.subarray(row * columns, (row + 1) * columns), true),
  );
}

/** Where the largest (least) is, the first of equal ones; NaN counts as that. */
function extreme(values: ArrayLike<number>, largest: boolean): number {
  let best = 0;
  for (let i = 0; i < values.length; ++i) {
    const [value, found] = [values[i] as number, values[best] as number];
    if (Number.isNaN(found)) break;
    if (Number.isNaN(value) || (largest ? value > found : value < found)) best = i;
  }
  return best;
}

// --- what a network ends in, along an axis ---

function lastStep(entry: unknown): OutputStep {
  if (!Array.isArray(entry))
    throw new UnsupportedError("model: it ends in functions that this client does not have; use the Python client");
  const [operator, axis] = [text(entry[0]), integer(entry[1], -64, 64)];
  const keepdims = entry[2] === undefined ? true : flag(entry[2]);
  const count = entry[3] === undefined ? 0 : integer(entry[3]);
  const largest = entry[4] === undefined ? true : flag(entry[4]);
  const lines: Readonly<Record<string, (values: Float64Array) => number[]>> = {
    Softmax: softmaxOf,
    LogSoftmax: (values) => {
      const most = Math.max(...values);
      const sum = values.reduce((total, value) => total + Math.exp(value - most), 0);
      return Array.from(values, (value) => value - most - Math.log(sum));
    },
    Hardmax: (values) => Array.from(values, (_, i) => Number(i === extreme(values, true))),
    ArgMax: (values) => [extreme(values, true)],
    ArgMin: (values) => [extreme(values, false)],
    TopK: (values) =>
      order(values, largest)
        .slice(0, count)
        .map((i) => values[i] as number),
    TopKIndices: (values) => order(values, largest).slice(0, count),
  };
  const line = lines[operator];
  demand(line !== undefined, `one of the last steps ${Object.keys(lines).join(", ")}`);
  const drops = (operator === "ArgMax" || operator === "ArgMin") && !keepdims;
  return { name: operator, stage: "scores", run: (x) => alongAxis(x, axis, line, drops) };
}

function order(values: Float64Array, largest: boolean): number[] {
  const sign = largest ? -1 : 1;
  return Array.from(values.keys()).sort((a, b) => sign * ((values[a] as number) - (values[b] as number)) || a - b);
}

function softmaxOf(values: Float64Array): number[] {
  const most = Math.max(...values);
  const powers = Array.from(values, (value) => Math.exp(value - most));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

function softmax(x: Tensor, axis: number): Tensor {
  return alongAxis(x, axis, softmaxOf, false);
}

/** Every line along an axis that is not the first, replaced by line(values). */
function alongAxis(x: Tensor, axis: number, line: (values: Float64Array) => number[], drops: boolean): Tensor {
  const place = axis < 0 ? axis + x.shape.length : axis;
  if (!(place >= 1 && place < x.shape.length))
    throw new ShapeError(`output: expected an axis of [${x.shape.join(", ")}] after the first, got ${axis}`);
  const [outer, extent, inner] = [sizeOf(x.shape.slice(0, place)), x.shape[place] as number, sizeOf(x.shape.slice(place + 1))];
  let [out, length] = [new Float64Array(0), 0];
  for (let o = 0; o < outer; ++o)
    for (let i = 0; i < inner; ++i) {
      const found = line(Float64Array.from({ length: extent }, (_, e) => x.data[(o * extent + e) * inner + i] as number));
      if (out.length === 0) [out, length] = [new Float64Array(outer * inner * found.length), found.length];
      found.forEach((value, e) => (out[(o * length + e) * inner + i] = value));
    }
  const shape = [...x.shape];
  shape.splice(place, 1, ...(drops ? [] : [length]));
  return { shape, data: out };
}
