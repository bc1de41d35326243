// Steps after decryption: what models/client_steps/answers.py does, from decrypted numbers to labels.

import { extreme, interpolated, made, mapped, remainder, roundHalfEven, table, type Tensor } from "./arrays.js";
import { COLUMN_STEPS } from "./column_steps.js";
import { ShapeError } from "./errors.js";
import {
  chosen,
  demand,
  entries,
  type Fields,
  fields,
  flag,
  indices,
  integer,
  integers,
  type Label,
  labels,
  MOST_NUMBERS,
  readWhole,
  real,
  reals,
  text,
  vector,
} from "./fields.js";
import { type LastStep, lastStep, MOST_LAST_STEPS } from "./last_steps.js";
import { named, type NamedTensors } from "./tensors.js";
import { bestClass, classThreshold, TRANSFORMS } from "./transforms.js";
import { Unfit } from "./unfit.js";

export const STAGES = ["scores", "probabilities", "labels"] as const;
export type Stage = (typeof STAGES)[number];

/** Numbers, or a label for each sample (of several outputs several); of networks with several outputs numbers by name. */
export type Answer = Tensor | Label[] | Label[][] | NamedTensors;

export interface OutputStep {
  name: string;
  stage: Stage;
  run: (x: Tensor) => Answer;
  /** Of each score, if the step takes one score for each label. */
  labels?: readonly Label[];
}

const MOST_STEPS = 1000;
const FROM_SCORES = ["Labels", "LabelGroups", "Indicators"]; // they take scores, not probabilities

export function isNumbers(answer: Answer): answer is Tensor {
  return !Array.isArray(answer) && answer["data"] instanceof Float64Array;
}

/** All that the client does after decryption, to an output of this shape: what a network ends in comes first. */
export function outputSteps(last: unknown, answers: unknown, shape: readonly number[]): OutputStep[] {
  const first = entries(last, MOST_LAST_STEPS).map(lastStep);
  demand(
    first.every((step) => step.fits(shape)),
    "last steps that fit the output",
  );
  const others = entries(answers, MOST_STEPS).map((entry) => readWhole(fields(entry), outputStep));
  const stages = others.map((step) => STAGES.indexOf(step.stage));
  demand(
    stages.every((stage, i) => i === 0 || stage >= (stages[i - 1] as number)),
    `steps in the order ${STAGES.join(", ")}`,
  );
  demand(
    others.slice(0, -1).every((step) => step.name !== "Named"),
    "nothing after outputs have their names",
  );
  return [...first.map(({ run }: LastStep): OutputStep => ({ name: "", stage: "scores", run })), ...others];
}

function outputStep(given: Fields): OutputStep {
  const name = text(given["step"]);
  const { stage, make } = chosen(KINDS, name, "known steps");
  return { name, stage, run: make(given), ...(name === "Labels" && { labels: labels(given["labels"]) }) };
}

/** Stops before the first step of a later stage. Labels come from scores, so that saturated probabilities are no ties. */
export function runOutputSteps(steps: OutputStep[], values: Tensor, until: Stage): Answer {
  const fromScores = until === "labels" && steps.some((step) => FROM_SCORES.includes(step.name));
  let answer: Answer = values;
  for (const step of steps) {
    if (fromScores && step.stage === "probabilities") continue;
    if (STAGES.indexOf(step.stage) > STAGES.indexOf(until)) break;
    if (!isNumbers(answer)) throw new ShapeError("output: expected numbers before the last step; the specification is damaged");
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
      const radix = integers(given["radix"], 1);
      const width = radix.shape[1] ?? 0;
      demand(radix.shape.length === 2, "positive radices [outputs, most digits]");
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

  Members: { stage: "scores", make: members },

  // Column j by straight lines between the points x, y of [start[j], start[j + 1]): isotonic calibration.
  Curves: {
    stage: "scores",
    make: (given) => {
      const [start, x, y] = [indices(given["start"], 0), vector(given["x"]), vector(given["y"])];
      demand(start.length > 1 && x.length === y.length, "points of columns");
      demand(start[0] === 0 && start.at(-1) === x.length, "points that all belong to a column");
      demand(
        start.every((at, i) => i === 0 || at > (start[i - 1] as number)),
        "a point for each column",
      );
      const parts = (of: Float64Array): Float64Array[] => Array.from(start.subarray(1), (end, j) => of.subarray(start[j], end));
      const [xs, ys] = [parts(x), parts(y)];
      demand(
        xs.every((part) => part.every((value, i) => i === 0 || value >= (part[i - 1] as number))),
        "points in ascending order",
      );
      return (scores) => {
        table(scores, xs.length);
        return mapped(scores, (value, i) => interpolated(value, xs[i % xs.length] as Float64Array, ys[i % xs.length] as Float64Array));
      };
    },
  },

  Named: { stage: "scores", make: named },

  Transform: {
    stage: "probabilities",
    make: (given) => {
      const [name, parameter, classes] = [text(given["name"]), real(given["parameter"]), flag(given["classes"])];
      const transform = chosen(TRANSFORMS, name, "a known transform");
      demand(parameter !== 0, "a parameter other than 0");
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
      return (x) => firstColumn(x).map((score) => (score - offset < 0 ? -1 : 1));
    },
  },

  Pick: {
    stage: "labels",
    make: (given) => {
      const names = labels(given["labels"]);
      return (x) =>
        firstColumn(x).map((score) => {
          const label = names[roundHalfEven(score)];
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

function quantise(given: Fields): (x: Tensor) => Tensor {
  const { run } = chosen(COLUMN_STEPS, "Quantise", "known steps")(given);
  return (x) => run(x, new Unfit());
}

function firstColumn({ shape, data }: Tensor): number[] {
  if (shape.length !== 2 || shape[1] === 0) throw new ShapeError(`output: expected scores [samples, outputs], got [${shape.join(", ")}]`);
  return Array.from({ length: shape[0] as number }, (_, row) => data[row * (shape[1] as number)] as number);
}

/** Columns in groups, one for each member of an ensemble: its probabilities by its transform, or its vote, side by side. */
function members(given: Fields): (x: Tensor) => Tensor {
  const [sizes, parameters] = [indices(given["sizes"], 1), vector(given["parameters"])];
  const transforms = entries(given["transforms"], MOST_NUMBERS).map(text);
  const [classes, votes] = [flag(given["classes"]), flag(given["votes"])];
  demand(
    sizes.length > 0 && [transforms, parameters].every((each) => each.length === sizes.length),
    "a size and a parameter for each member",
  );
  demand(
    parameters.every((each) => each !== 0),
    "parameters other than 0",
  );
  const run = transforms.map((name) => chosen(TRANSFORMS, name, "known transforms"));
  const width = sizes.reduce((sum, size) => sum + size, 0);
  const one = (scores: Tensor, member: number): Tensor => {
    if (!votes) return (run[member] as (typeof run)[number])(scores, parameters[member] as number, classes);
    const best = bestClass(scores, classThreshold(transforms[member] as string));
    return made(best.length, Math.max(2, scores.shape[1] as number), (row, c) => Number(best[row] === c));
  };
  return (x) => {
    const { rows, data } = table(x, width);
    let first = 0;
    const groups = Array.from(sizes, (size, member) => {
      const start = first;
      first += size;
      return one(
        made(rows, size, (row, c) => data[row * width + start + c] as number),
        member,
      );
    });
    const place = groups.flatMap(({ shape }, member) =>
      Array.from({ length: shape[1] as number }, (_, c): [number, number] => [member, c]),
    );
    return made(rows, place.length, (row, c) => {
      const [member, column] = place[c] as [number, number];
      const group = groups[member] as Tensor;
      return group.data[row * (group.shape[1] as number) + column] as number;
    });
  };
}
