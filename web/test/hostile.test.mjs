// Client specifications come from a server: whatever is changed in one, it works or is refused by an error of the module.
import assert from "node:assert/strict";
import { test } from "node:test";

import { ClientKey, ClientSpecification, Engine, FheError, parameterSet } from "../dist/index.js";

const engine = await Engine.load({ environment: { CLOAKWORK_ALLOW_TOY: "1" } });
const SET = "toy_two_limb";
const hexadecimal = (bytes) => Buffer.from(bytes).toString("hex");
const FIELDS = {
  cloakwork_client: 2,
  program_digest: "ab".repeat(32),
  parameter_set: SET,
  parameter_digest: hexadecimal(parameterSet(engine, SET).digest),
  input_range: [-1, 1],
  input_scale: 0.125,
};
const GRID = { feature: [0], count: [4], low: [0], spacing: [0.25], points: [], missing: true, strict: false, single: true };
const quiet = { onWarning: () => undefined };

// Every step is in one of them.
const SPECIFICATIONS = {
  categories: {
    samples: [
      [0.5, NaN, "red"],
      [-2, 0.25, "green"],
    ],
    json: {
      ...FIELDS,
      input_shape: [11],
      output_scale: [0.0625, 0.125],
      output_offset: [0, 0.5],
      client_steps: [
        ["Softmax", -1, true, 0, true],
        ["TopK", 1, true, 2, true],
      ],
      input_steps: [
        { step: "Categories", count: 3, columns: [2], known: [["red", "blue"]], unseen: "ignore", names: ["a", "b", "c"], missing: true },
        { step: "Impute", fill: [0, 1, 2] },
        { step: "OneHot", sizes: [0, 0, 2] },
        {
          step: "Append",
          columns: [0, 1],
          steps: [
            {
              step: "Polynomials",
              powers: [
                [2, 0],
                [1, 1],
              ],
            },
            { step: "Normalise", norm: "l2" },
          ],
        },
        { step: "Saturate", lower: [-1, -1, -1, -1, -1, -1], upper: [1, 1, 1, 1, 1, 1] },
        { step: "Append", columns: [0], steps: [{ step: "Thermometer", ...GRID, digit: [1] }] },
        { step: "Select", columns: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9] },
      ],
      output_steps: [
        { step: "Wrap", lowest: [0, -1], modulus: 4 },
        {
          step: "Combine",
          matrix: [
            [1, 0],
            [0.5, 2],
          ],
          offset: [0, 1],
        },
        { step: "Transform", name: "softmax", parameter: 1, classes: true },
        { step: "Labels", labels: ["no", "yes"], threshold: 0.5 },
      ],
      output_unit: 0.0625,
    },
  },

  features: {
    samples: [
      [0.5, 3],
      [-2, 0.25],
    ],
    json: {
      ...FIELDS,
      input_shape: [10],
      output_scale: [0.0625, 0.125, 0.125],
      output_offset: [0, 0.5, 0],
      client_steps: [
        {
          functions: [
            [
              ["Affine", [2, 1], [1]],
              ["Sigmoid", [], [1]],
              ["Mul", [], [1, 2]],
            ],
            [["Erf", [], [1]]],
          ],
          which: [0, 1, 1],
        },
      ],
      input_steps: [
        { step: "Columns", count: 2, names: null, missing: true },
        { step: "Complete", names: ["a"], columns: [1] },
        { step: "Power", method: "yeo-johnson", exponent: [0.5, 2] },
        {
          step: "Quantiles",
          quantiles: [
            [-1, 0],
            [0.5, 0],
            [1, 2],
          ],
          references: [0, 0.5, 1],
          output: "normal",
        },
        { step: "Function", name: "tanh" },
        { step: "Present" },
        {
          step: "Splines",
          knots: [
            [-2, -3],
            [-1, -1],
            [1, 1],
            [2, 3],
          ],
          degree: 1,
          outside: "periodic",
          bias: true,
        },
        {
          step: "Project",
          offset: [0, 1],
          matrix: [
            [1, 0, 2],
            [0, 1, 1],
          ],
        },
        { step: "Standardise", offset: [0, 0, 0], scale: [1, 0.5, 1] },
        { step: "Divide", offset: [0, 0.5, 0], divisor: [3, -1, 1] },
        { step: "Append", columns: [0], steps: [{ step: "Positions", ...GRID, bits: 2 }] },
        {
          step: "Append",
          columns: [0, 1],
          steps: [
            { step: "Binarise", threshold: [0, 0.5] },
            { step: "Equal", feature: [1], value: [1] },
          ],
        },
        {
          step: "Append",
          columns: [0],
          steps: [{ step: "Compare", feature: [0], threshold: [0.5], missing: [1], strict: true, single: false }],
        },
        {
          step: "Append",
          columns: [1],
          steps: [
            {
              step: "Bins",
              feature: [0, 0],
              start: [0, 3, 3],
              threshold: [-1, 0, 1],
              digit: [0, 1],
              radix: 2,
              strict: false,
              single: true,
            },
          ],
        },
        { step: "Rescale", lower: [-1], upper: [1], offset: [0], scale: [0.75] },
        { step: "Quantise", unit: 0.125, low: -1, high: 1, calibrated: true },
        { step: "Round" },
      ],
      output_steps: [
        { step: "Members", sizes: [1, 2], transforms: ["sigmoid", "softmax"], parameters: [1, 2], classes: true, votes: false },
        { step: "Curves", start: [0, 2, 3, 5, 6], x: [0, 1, 0.5, 0.25, 0.25, 1], y: [0, 1, 0.5, 0, 1, 0.5] },
        {
          step: "Combine",
          matrix: [[1], [0.5], [2], [-1]],
          offset: [0],
        },
        { step: "Integers" },
        { step: "Digits", radix: [[2, 1, 3]] },
        { step: "Transform", name: "shares", parameter: 1, classes: true },
        { step: "LabelGroups", labels: ["no", "yes"], sizes: [1, 1] },
      ],
    },
  },

  texts: {
    samples: ["Red dog, red  cat", "déjà vu"],
    json: {
      ...FIELDS,
      input_shape: [3],
      output_scale: [0.0625],
      output_offset: [0],
      client_steps: [["ArgMax", 1, true]],
      input_steps: [
        {
          step: "Texts",
          vocabulary: ["red", "red cat", "deja"],
          hashed: 0,
          signed: false,
          analyzer: "word",
          pattern: "(?u)\\b\\w\\w+\\b",
          lowercase: true,
          accents: "unicode",
          stop: ["dog"],
          shortest: 1,
          longest: 2,
          binary: false,
        },
      ],
      output_steps: [{ step: "Pick", labels: [3, 4] }],
    },
  },

  tensors: {
    samples: {
      image: [
        [
          [0, 1],
          [2, 3],
        ],
        [
          [9, 0],
          [0, 1],
        ],
      ],
      table: [[5], [7]],
    },
    json: {
      ...FIELDS,
      input_shape: [5],
      output_scale: [0.0625, 0.0625, 0.125],
      output_offset: [0, 0, 0],
      client_steps: [],
      input_steps: [
        {
          step: "Tensors",
          names: ["image", "table"],
          shapes: [[2, 2], [1]],
          steps: [
            [
              {
                step: "Rescale",
                lower: [[0], [0]],
                upper: [[1], [2]],
                offset: [[0], [0]],
                scale: [[1], [0.5]],
              },
            ],
            [{ step: "Quantise", unit: 0.25, low: -1, high: 1, calibrated: false }],
          ],
          unused: ["clock"],
        },
      ],
      output_steps: [
        {
          step: "Named",
          names: ["shares", "best", "line"],
          shapes: [[3], [2], [1]],
          steps: [
            [["Softmax", -1, true, 0, true]],
            [["ArgMin", 1, false, 0, true]],
            [{ functions: [[["Sum", [1, 2, 0.5], [1, 1]]]], which: [0] }],
          ],
          spread: [0, 1, 2, 2, 0, 1],
        },
      ],
    },
  },
};
const WRONG = [null, -1, 0, 1.5, 1e9, 2 ** 60, NaN, "x", "constructor", "\ud800", [], {}, [[]], true, ["Softmax"], Array(40).fill([1])];
WRONG.push({ step: "Nothing" }, { step: "toString" });

async function use(specification, key, samples) {
  const input = specification.encrypt(key, samples, quiet);
  assert.ok(input.length > 0);
  const outputs = SHAPES.get(key) ?? 2;
  const phases = Array.from({ length: 2 * outputs }, (_, i) => 0.1 - 0.05 * i);
  const answer = key.encryptTorus(phases, { form: "lwe", shape: [2, outputs], purpose: specification.program });
  for (const until of ["scores", "probabilities", "labels"]) await specification.decrypt(key, answer, { until });
}
const SHAPES = new Map();

/** Every place of a value in nested objects and lists. */
function* places(value, path = []) {
  yield path;
  if (typeof value === "object" && value !== null) for (const name of Object.keys(value)) yield* places(value[name], [...path, name]);
}

/** With the value at a place replaced, or left out for undefined. */
function changed(json, path, wrong) {
  const result = structuredClone(json);
  const holder = path.slice(0, -1).reduce((value, name) => value[name], result);
  if (wrong === undefined && !Array.isArray(holder)) delete holder[path.at(-1)];
  else if (wrong === undefined) holder.splice(Number(path.at(-1)), 1);
  else holder[path.at(-1)] = wrong;
  return result;
}

for (const [name, { samples, json }] of Object.entries(SPECIFICATIONS)) {
  const outputs = json.output_scale.length;

  test(`${name}: it works as it is`, async () => {
    const key = await ClientKey.generate(SET, engine);
    SHAPES.set(key, outputs);
    await use(new ClientSpecification(JSON.stringify(json), engine), key, samples);
  });

  test(`${name}: every value replaced or left out`, async () => {
    const key = await ClientKey.generate(SET, engine);
    SHAPES.set(key, outputs);
    let [refused, tried] = [0, 0];
    for (const path of places(json)) {
      if (path.length === 0) continue;
      for (const wrong of [...WRONG, undefined]) {
        ++tried;
        try {
          await use(new ClientSpecification(JSON.stringify(changed(json, path, wrong)), engine), key, samples);
        } catch (error) {
          ++refused;
          assert.ok(error instanceof FheError, `${path.join(".")} = ${JSON.stringify(wrong)}: ${error.stack}`);
        }
      }
    }
    assert.ok(tried > 500 && refused > tried / 2, `${refused} of ${tried}`);
  });

  test(`${name}: a field that this release does not know is not passed over`, () => {
    for (const list of ["input_steps", "output_steps"])
      json[list].forEach((_, i) => {
        const given = structuredClone(json);
        given[list][i].also = 1;
        assert.throws(() => new ClientSpecification(JSON.stringify(given), engine), { name: "SerializationError" }, `${list} ${i}`);
      });
  });
}

test("sizes that a specification asks for are bounded", () => {
  const append = (steps) => [{ step: "Append", columns: [0], steps }];
  const deep = (depth) => Array.from({ length: depth }).reduce(append, [{ step: "Round" }]);
  const columns = { step: "Columns", count: 1, names: null, missing: false };
  const huge = { ...GRID, step: "Positions", bits: 1, feature: Array(2 ** 17).fill(0) };
  for (const name of ["low", "spacing"]) huge[name] = Array(2 ** 17).fill(1);
  huge.count = Array(2 ** 17).fill(65535);
  const texts = { ...SPECIFICATIONS.texts.json.input_steps[0], vocabulary: [], hashed: 2 ** 21 };
  for (const steps of [
    [columns, ...deep(20)],
    [columns, { step: "OneHot", sizes: [2 ** 40] }],
    [columns, huge],
    [texts],
    [{ ...columns, count: 2 ** 30 }],
    Array(2000).fill({ step: "Round" }),
    // Each step doubles the columns.
    [
      columns,
      ...Array.from({ length: 30 }, (_, i) => ({
        step: "Append",
        columns: Array.from({ length: 2 ** Math.min(i, 12) }, (_, c) => c),
        steps: [{ step: "OneHot", sizes: Array(2 ** Math.min(i, 12)).fill(256) }],
      })),
    ],
  ]) {
    const given = { ...SPECIFICATIONS.texts.json, input_steps: steps };
    assert.throws(() => new ClientSpecification(JSON.stringify(given), engine), { name: "SerializationError" });
  }
});
