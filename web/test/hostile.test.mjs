// Client specifications come from a server: whatever is changed in one, it works or is refused by an error of the module.
import assert from "node:assert/strict";
import { test } from "node:test";

import { ClientKey, ClientSpecification, Engine, FheError } from "../dist/index.js";
import { cases } from "./stored.mjs";

const engine = await Engine.load({ environment: { CLOAKWORK_ALLOW_TOY: "1" } });
const quiet = { onWarning: () => undefined };
const key = await ClientKey.generate("toy", engine);

const WRONG = [null, -1, 0, 1.5, 1e9, 2 ** 60, NaN, "x", "constructor", "\ud800", [], {}, [[]], true, ["Softmax"], Array(40).fill([1])];
WRONG.push({ step: "Nothing" }, { step: "toString" });

/** The kinds of steps in a specification. */
function kindsOf(value) {
  if (typeof value !== "object" || value === null) return [];
  const name = value.step ?? (Array.isArray(value) && typeof value[1] === "number" ? value[0] : "functions" in value && "functions");
  return [name, ...Object.values(value).flatMap(kindsOf)].filter((each) => typeof each === "string" && each !== "");
}

/** The shortest of the stored specifications that has a kind of step, of each kind. */
function shortest() {
  const chosen = new Map();
  const whole = cases.filter(({ error, samples, phases }) => error === undefined && (samples ?? phases)?.length !== 0);
  for (const each of whole.sort((one, other) => one.json.length - other.json.length))
    for (const kind of kindsOf(each.client)) if (!chosen.has(kind)) chosen.set(kind, each);
  return new Set(chosen.values());
}

/** Encrypts the samples, or decrypts the phases. */
async function use(json, { samples, phases }) {
  const specification = new ClientSpecification(JSON.stringify(json), engine);
  if (samples !== undefined) return assert.ok(specification.encrypt(key, samples, quiet).length > 0);
  const numbers = phases[0].flat(Infinity);
  const torus = numbers.map((value) => Math.max(-0.25, Math.min(0.25, value || 0)));
  const answer = key.encryptTorus(torus, { form: "lwe", shape: [1, numbers.length], purpose: specification.program });
  for (const until of ["scores", "probabilities", "labels"]) await specification.decrypt(key, answer, { until });
}

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

const chosen = shortest();
const [first] = chosen;
for (const each of chosen) {
  const json = JSON.parse(each.json);
  const paths = [...places(json)].filter(([field]) => field in each.client || (each === first && field !== undefined));

  test(`${each.name}: it works as it is`, () => use(json, each));

  test(`${each.name}: every value replaced or left out`, async () => {
    let [refused, tried] = [0, 0];
    for (const path of paths)
      for (const wrong of [...WRONG, undefined]) {
        ++tried;
        try {
          await use(changed(json, path, wrong), each);
        } catch (error) {
          ++refused;
          assert.ok(error instanceof FheError, `${path.join(".")} = ${JSON.stringify(wrong)}: ${error.stack}`);
        }
      }
    assert.ok(refused > tried / 2, `${refused} of ${tried}`);
  });

  test(`${each.name}: a field that this release does not know is not passed over`, () => {
    for (const list of ["input_steps", "output_steps"])
      json[list].forEach((_, i) => {
        const given = structuredClone(json);
        given[list][i].also = 1;
        assert.throws(() => new ClientSpecification(JSON.stringify(given), engine), { name: "SerializationError" }, `${list} ${i}`);
      });
  });
}

test("sizes that a specification asks for are bounded", () => {
  const json = JSON.parse(first.json);
  const append = (steps) => [{ step: "Append", columns: [0], steps }];
  const deep = (depth) => Array.from({ length: depth }).reduce(append, [{ step: "Round" }]);
  const columns = { step: "Columns", count: 1, names: null, missing: false };
  const many = (value) => Array(2 ** 17).fill(value);
  const grids = { feature: many(0), count: many(65535), low: many(1), spacing: many(1), points: [] };
  const doubled = Array.from({ length: 30 }, (_, i) => ({
    step: "Append",
    columns: Array.from({ length: 2 ** Math.min(i, 12) }, (_, c) => c),
    steps: [{ step: "OneHot", sizes: Array(2 ** Math.min(i, 12)).fill(256) }],
  }));
  for (const steps of [
    [columns, ...deep(20)],
    [columns, { step: "Positions", ...grids, bits: 1, missing: true, strict: false, single: true }],
    [{ ...columns, count: 2 ** 30 }],
    [columns, ...Array(2000).fill({ step: "Round" })],
    [columns, ...doubled],
  ])
    assert.throws(() => new ClientSpecification(JSON.stringify({ ...json, input_steps: steps }), engine), { name: "SerializationError" });
});
