// Client specifications come from a server: whatever is changed in one, it works or is refused by an error of the module.
import assert from "node:assert/strict";
import { test } from "node:test";

import { ClientKey, ClientSpecification, Engine, FheError, parameterSet } from "../dist/index.js";

const engine = await Engine.load({ environment: { CLOAKWORK_ALLOW_TOY: "1" } });
const SET = "toy_two_limb";
const hexadecimal = (bytes) => Buffer.from(bytes).toString("hex");
const SPECIFICATION = {
  cloakwork_client: 2,
  program_digest: "ab".repeat(32),
  parameter_set: SET,
  parameter_digest: hexadecimal(parameterSet(engine, SET).digest),
  input_shape: [11],
  input_range: [-1, 1],
  input_scale: 0.125,
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
    {
      step: "Append",
      columns: [0],
      steps: [
        {
          step: "Thermometer",
          feature: [0],
          count: [4],
          low: [0],
          spacing: [0.25],
          points: [],
          digit: [1],
          missing: true,
          strict: false,
          single: true,
        },
      ],
    },
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
};
const SAMPLES = [
  [0.5, NaN, "red"],
  [-2, 0.25, "green"],
];
const WRONG = [null, -1, 0, 1.5, 1e9, 2 ** 60, NaN, "x", [], {}, [[]], true, ["Softmax"], Array(40).fill([1]), { step: "Nothing" }];

function use(specification, key) {
  const input = specification.encrypt(key, SAMPLES);
  assert.ok(input.length > 0);
  const answer = key.encryptTorus([0.1, -0.1, 0.05, 0], { form: "lwe", shape: [2, 2], purpose: specification.program });
  for (const until of ["scores", "probabilities", "labels"]) specification.decrypt(key, answer, { until });
}

/** Every place of a value in nested objects and lists. */
function* places(value, path = []) {
  yield path;
  if (typeof value === "object" && value !== null) for (const name of Object.keys(value)) yield* places(value[name], [...path, name]);
}

test("it works as it is", async () => {
  use(new ClientSpecification(JSON.stringify(SPECIFICATION), engine), await ClientKey.generate(SET, engine));
});

test("every value replaced or left out", async () => {
  const key = await ClientKey.generate(SET, engine);
  let refused = 0;
  let tried = 0;
  for (const path of places(SPECIFICATION)) {
    if (path.length === 0) continue;
    for (const wrong of [...WRONG, undefined]) {
      const changed = structuredClone(SPECIFICATION);
      const holder = path.slice(0, -1).reduce((value, name) => value[name], changed);
      if (wrong === undefined && !Array.isArray(holder)) delete holder[path.at(-1)];
      else if (wrong === undefined) holder.splice(Number(path.at(-1)), 1);
      else holder[path.at(-1)] = wrong;
      ++tried;
      try {
        use(new ClientSpecification(JSON.stringify(changed), engine), key);
      } catch (error) {
        ++refused;
        assert.ok(error instanceof FheError, `${path.join(".")} = ${JSON.stringify(wrong)}: ${error.stack}`);
      }
    }
  }
  assert.ok(tried > 1500 && refused > tried / 2, `${refused} of ${tried}`);
});
