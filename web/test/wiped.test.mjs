// What the engine's memory holds of a secret key when it is closed, and after a call that failed: nothing.
import assert from "node:assert/strict";
import { test } from "node:test";

import { CancelledError, ClientKey, Engine } from "../dist/index.js";
import { openSecret } from "../dist/keystore.js";

const CHEAP = { log2n: 10, r: 8, p: 1 };
const WINDOW = 48; // coefficients in a row: 2^48 others at least

async function secretOf(key, engine) {
  const { secret } = await openSecret(engine, await key.save("word", CHEAP), "word");
  return secret;
}

/** How many places of memory hold a part of the key, as signed bytes. */
function traces(engine, secret) {
  const memory = Buffer.from(engine.copy(0, engine.memoryBytes));
  let found = 0;
  for (let start = 0; start + WINDOW <= secret.length; start += WINDOW) {
    const part = Buffer.from(secret.buffer, secret.byteOffset + start, WINDOW);
    for (let at = memory.indexOf(part); at >= 0; at = memory.indexOf(part, at + 1)) ++found;
  }
  return found;
}

test("keys are overwritten", async () => {
  const engine = await Engine.load();
  const key = await ClientKey.generate("lut2", engine);
  const file = await key.save("word", CHEAP);
  const secret = await secretOf(key, engine);
  const parts = Math.floor(secret.length / WINDOW) - 1; // the small and the large key are apart
  assert.equal(traces(engine, secret), parts); // the key itself, once; its exported copy is gone
  for await (const _ of key.evaluationKeys());
  await assert.rejects(async () => {
    for await (const _ of key.evaluationKeys((done) => done < 1000));
  }, CancelledError);
  await key.decrypt(key.encryptMessages([1, 2, 3]));
  assert.equal(traces(engine, secret), parts);
  const again = await ClientKey.load(file, "word", engine);
  assert.equal(traces(engine, secret), 2 * parts);
  again.close();
  key.close();
  assert.equal(traces(engine, secret), 0);
});
