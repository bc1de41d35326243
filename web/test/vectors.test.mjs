// The known answers of tests/vectors, which the C++ engine and Python are tested with too: same entropy, same bytes.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { ClientKey, Engine, parameterSet } from "../dist/index.js";

const FOLDER = new URL("../../tests/vectors/", import.meta.url);
const ENTROPY = Uint8Array.from({ length: 32 }, (_, i) => i);
const PASSPHRASE = "cloakwork test vector";
const read = (name) => new Uint8Array(readFileSync(new URL(name, FOLDER)));
const sha256 = (data) => createHash("sha256").update(data).digest("hex");
const digests = JSON.parse(readFileSync(new URL("digests.json", FOLDER), "utf8"));
const engine = await Engine.load({ environment: { CLOAKWORK_ALLOW_TOY: "1" } });

const inLanes = (messages, lanes) => messages.flatMap((m) => Array.from({ length: lanes }, (_, lane) => (m + lane) % 4));

async function joined(parts) {
  const found = [];
  for await (const part of parts) found.push(part);
  return Buffer.concat(found);
}

for (const set of Object.keys(digests)) {
  const lanes = parameterSet(engine, set).laneCount;
  const messages = inLanes([0, 1, 2, 3], lanes);
  const many = inLanes(
    Array.from({ length: 300 }, (_, i) => i % 4),
    lanes,
  );

  test(`${set}: the row has the digest`, () => {
    assert.equal(parameterSet(engine, set).text, Buffer.from(read(`${set}_parameter_set.txt`)).toString());
  });

  // The order of the calls is that of tests/vectors/generate.py, because each draws the next randomness: the evaluation keys with their first
  // part, the public key at their end.
  test(`${set}: the same entropy gives the same words`, async () => {
    const key = ClientKey.fromEntropy(set, ENTROPY, engine);
    const parts = key.evaluationKeys();
    const first = (await parts.next()).value;
    for (const [form, name, values] of [
      ["lwe", "ciphertexts", messages],
      ["seeded", "seeded_ciphertexts", messages],
      ["packed", "packed_ciphertexts", many],
    ])
      assert.equal(sha256(key.encryptMessages(values, { form })), sha256(read(`${set}_${name}.clkw`)), name);
    const rest = await joined(parts);
    assert.equal(first.length + rest.length, key.evaluationKeysBytes);
    assert.equal(sha256(Buffer.concat([first, rest])), digests[set].evaluation_keys_object);
    key.close();
  });

  test(`${set}: the key file opens, and its objects decrypt`, async () => {
    const key = await ClientKey.load(read(`${set}_secret_key.clkw`), PASSPHRASE, engine);
    for (const name of ["ciphertexts", "seeded_ciphertexts"])
      assert.deepEqual([...(await key.decrypt(read(`${set}_${name}.clkw`)))], messages);
    assert.deepEqual([...(await key.decrypt(read(`${set}_packed_ciphertexts.clkw`)))], many);
    assert.deepEqual([...(await key.decrypt(read(`${set}_bootstrapped.clkw`)))], inLanes([1, 2, 3, 0], lanes));
    await assert.rejects(ClientKey.load(read(`${set}_secret_key.clkw`), "another", engine), { name: "KeyMismatchError" });
    key.close();
  });
}
