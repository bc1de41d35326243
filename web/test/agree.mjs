// Steps before encryption and after decryption without keys, of many specifications, for tests/web/test_web_agreement.py: node agree.mjs
// CASES ANSWERS. Numbers that JSON lacks are null (NaN) and the texts "inf", "-inf".
import { readFileSync, writeFileSync } from "node:fs";

import { ClientSpecification, Engine, isNumbers } from "../dist/index.js";

const [cases, answers] = process.argv.slice(2);
const engine = await Engine.load({ environment: { CLOAKWORK_ALLOW_TOY: "1" } });

const plain = (x) => ({ shape: x.shape, data: Array.from(x.data, (value) => (Number.isFinite(value) ? value : String(value))) });
const written = (answer) => {
  if (Array.isArray(answer)) return answer;
  if (isNumbers(answer)) return plain(answer);
  return { named: Object.fromEntries(Object.entries(answer).map(([name, each]) => [name, plain(each)])) };
};
const infinite = (x) => (Array.isArray(x) ? x.map(infinite) : x === "inf" ? Infinity : x === "-inf" ? -Infinity : x);

function attempt(work) {
  try {
    return work();
  } catch (error) {
    return { error: error.name, message: error.message };
  }
}

function inputs(specification, samples) {
  const warnings = [];
  return attempt(() => ({
    ...plain(specification.inputs(infinite(samples), { onWarning: ({ message }) => warnings.push(message) })),
    warnings,
  }));
}

function answered({ client, samples, phases }) {
  const specification = new ClientSpecification(client, engine);
  const found = { inputs: samples.map((each) => inputs(specification, each)), outputs: [] };
  for (const each of phases ?? []) {
    const tensor = { shape: each.shape, data: Float64Array.from(each.data) };
    const stages = ["scores", "probabilities", "labels"].map((until) => [
      until,
      attempt(() => written(specification.output(tensor, until))),
    ]);
    found.outputs.push(Object.fromEntries(stages));
  }
  return found;
}

writeFileSync(answers, JSON.stringify(JSON.parse(readFileSync(cases, "utf8")).map((each) => attempt(() => answered(each)))));
