// What the page computes of drawings, photographs and passphrases, as tests/vectors/steps/page.json stores it.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const { cases } = JSON.parse(readFileSync(new URL("../../tests/vectors/steps/page.json", import.meta.url), "utf8"));
const page = {};
for (const module of new Set(cases.map((each) => each.module))) {
  const entry = fileURLToPath(new URL(`../page/${module}.ts`, import.meta.url));
  const { outputFiles } = await build({ entryPoints: [entry], bundle: true, format: "esm", write: false });
  page[module] = await import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}

cases.forEach(({ module, call, given, answer, within }, i) =>
  test(`${call} ${i}`, () => {
    const result = page[module][call](...given);
    if (!Array.isArray(answer)) return assert.equal(result, answer);
    assert.equal(result.length, answer.length);
    answer.forEach((value, at) => assert.ok(Math.abs(result[at] - value) <= within, `number ${at}: expected ${value}, got ${result[at]}`));
  }),
);
