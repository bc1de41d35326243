// Steps before encryption and after decryption as tests/vectors/steps stores them, which the Python client is tested with too.
import assert from "node:assert/strict";
import { test } from "node:test";

import { ClientSpecification, Engine, isNumbers } from "../dist/index.js";
import { cases } from "./stored.mjs";

const engine = await Engine.load({ environment: { CLOAKWORK_ALLOW_TOY: "1" } });
const PYTHON_ONLY = /data frame|a dict|a tuple|by the names|got shape|encode text/; // texts that name what JavaScript has not, or say more

function attempt(work) {
  try {
    return work();
  } catch (error) {
    return { error: [error.name, error.message] };
  }
}

/** Numbers as stored: equal, or within a share of themselves and of the largest of their column. */
function check({ within = 0 }, answer, expected) {
  if ("error" in expected)
    assert.deepEqual(PYTHON_ONLY.test(expected.error[1]) ? { error: [answer.error[0], expected.error[1]] } : answer, {
      error: expected.error,
    });
  else if (Array.isArray(expected)) assert.deepEqual(answer, expected);
  else if (Array.isArray(answer)) assert.deepEqual(answer.flat(), expected.data);
  else if ("named" in expected) {
    assert.deepEqual(Object.keys(answer), Object.keys(expected.named));
    for (const [name, each] of Object.entries(expected.named)) check({ within }, answer[name], each);
  } else {
    assert.ok(isNumbers(answer), JSON.stringify(answer));
    assert.deepEqual(answer.shape, expected.shape);
    const width = expected.data.length / (expected.shape[0] || 1);
    const largest = Array(width).fill(0);
    const size = (value) => (Number.isFinite(value) ? Math.abs(value) : 0);
    expected.data.forEach((value, i) => (largest[i % width] = Math.max(largest[i % width], size(value))));
    expected.data.forEach((value, i) => {
      const near = within * (size(value) + largest[i % width]);
      const number = answer.data[i];
      const same = number === value || Math.abs(number - value) <= near || (Number.isNaN(number) && Number.isNaN(value));
      assert.ok(same, `number ${i}: expected ${value}, got ${number}`);
    });
  }
}

function checkInputs(each) {
  const warnings = [];
  const client = new ClientSpecification(each.json, engine);
  const answer = attempt(() => client.inputs(each.samples, { onWarning: ({ message }) => warnings.push(message) }));
  check(each, answer, "error" in each ? each : { shape: each.shape, data: each.numbers });
  assert.deepEqual(warnings, each.warnings ?? []);
}

function checkAnswers(each) {
  const shape = [];
  for (let level = each.phases; Array.isArray(level); level = level[0]) shape.push(level.length);
  const phases = { shape, data: Float64Array.from(each.phases.flat(Infinity)) };
  const client = new ClientSpecification(each.json, engine);
  let expected = null;
  for (const stage of ["scores", "probabilities", "labels"]) {
    expected = each[stage] ?? expected;
    check(
      each,
      attempt(() => client.output(phases, stage)),
      expected,
    );
  }
}

for (const each of cases)
  test(each.name, () => {
    if ("samples" in each) checkInputs(each);
    else if ("phases" in each) checkAnswers(each);
    else assert.throws(() => new ClientSpecification(each.json, engine), { name: each.error[0] });
  });

test("the files are read", () => assert.ok(cases.length >= 600));
