// The file of an audit, byte by byte, and what is refused before one is made.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { auditFile } from "../dist/audit.js";

const facts = { model: "toy", version: "2", program: "ab".repeat(32), service: "http://127.0.0.1:8123" };
const bytes = (text) => new TextEncoder().encode(text);
const digest = (data) => createHash("sha256").update(data).digest("hex");
const exchange = (request, answer, auditKey = "00112233445566ff") => ({
  request: bytes(request),
  answer: bytes(answer),
  auditKey,
  keyName: "k",
});
const object = bytes("evaluation keys");
const keys = { bytes: object.length, sha256: digest(object) };

test("prefix, manifest, keys, then requests with their answers", async () => {
  const { manifest, parts } = await auditFile(facts, [exchange("one", "first"), exchange("two", "second")], keys, object);
  const file = Buffer.concat(parts);
  assert.equal(file.subarray(0, 4).toString(), "CLKA");
  assert.deepEqual([file.readUInt16LE(4), file.readUInt16LE(6)], [1, 0]);
  const length = Number(file.readBigUInt64LE(8));
  assert.deepEqual(JSON.parse(file.subarray(16, 16 + length).toString()), manifest);
  assert.equal(file.subarray(16 + length).toString(), "evaluation keysonefirsttwosecond");
  assert.deepEqual(manifest.keys, { ...keys, included: true });
  assert.deepEqual(manifest.exchanges[1], {
    request: { bytes: 3, sha256: digest("two") },
    answer: { bytes: 6, sha256: digest("second") },
  });
  assert.match(manifest.time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  const without = await auditFile(facts, [exchange("one", "first")], keys, null);
  assert.deepEqual(without.manifest.keys, { ...keys, included: false });
  assert.equal(Buffer.concat(without.parts.slice(2)).toString(), "onefirst");
});

test("no audit key, two of them, and other evaluation keys", async () => {
  const refused = (exchanges, held, message) => assert.rejects(auditFile(facts, exchanges, keys, held), { name: "ServiceError", message });
  await refused([], null, /which audit key/);
  await refused([exchange("one", "first", "")], null, /earlier release/);
  await refused([exchange("one", "first"), exchange("two", "second", "f".repeat(16))], null, /changed its audit key/);
  await refused([exchange("one", "first")], bytes("others"), /other evaluation keys/);
});
