// What the module refuses, and how: a clear error of its class, never a trap, never the secret.
import assert from "node:assert/strict";
import { test } from "node:test";

import { CancelledError, ClientKey, ClientSpecification, Engine, Keyring } from "../dist/index.js";
import { cases } from "./stored.mjs";

const engine = await Engine.load();
const toys = await Engine.load({ environment: { CLOAKWORK_ALLOW_TOY: "1" } });
const CHEAP = { log2n: 10, r: 8, p: 1 };

async function joined(parts) {
  const found = [];
  for await (const part of parts) found.push(part);
  return Buffer.concat(found);
}

test("unknown and insecure sets", async () => {
  await assert.rejects(ClientKey.generate("lut99", engine), { name: "ParameterError", message: /there is none called 'lut99'.*lut2/ });
  await assert.rejects(ClientKey.generate("toy", engine), { name: "ParameterError", message: /at least 128 bits/ });
  assert.throws(() => ClientKey.fromEntropy("lut2", new Uint8Array(32), engine), { name: "ParameterError" });
});

test("values out of range are named by position, never shown", async () => {
  const key = await ClientKey.generate("lut2", engine);
  assert.throws(
    () => key.encryptTorus([0.1, 0.987654]),
    (error) => error.name === "ParameterError" && /position 1/.test(error.message) && !/987/.test(error.message),
  );
  assert.throws(() => key.encryptTorus([NaN]), { name: "ParameterError" });
  assert.throws(() => key.encryptMessages([4]), { name: "ParameterError" });
  assert.throws(() => key.encryptMessages([]), { name: "ShapeError" });
  assert.throws(() => key.encryptMessages([1], { shape: Array(9).fill(1) }), { name: "ShapeError", message: /8 dimensions/ });
  assert.throws(() => JSON.stringify(key), { name: "ParameterError" });
  key.close();
  assert.throws(() => key.encryptMessages([1]), { name: "ParameterError", message: /closed/ });
});

test("every byte of an object that is changed, and every length, is refused", async () => {
  const key = await ClientKey.generate("toy", toys);
  const object = key.encryptMessages([1, 2], { form: "seeded" });
  assert.deepEqual([...(await key.decrypt(object))], [1, 2]);
  for (let i = 0; i < object.length; ++i) {
    const changed = object.slice();
    changed[i] ^= 1;
    await assert.rejects(key.decrypt(changed), { name: /SerializationError|KeyMismatchError/ }, `byte ${i}`);
  }
  for (let length = 0; length < object.length; ++length)
    await assert.rejects(key.decrypt(object.subarray(0, length)), { name: "SerializationError" }, `length ${length}`);
  await assert.rejects(key.decrypt(new Uint8Array([...object, 0])), { name: "SerializationError" });
  const other = await ClientKey.generate("toy", toys);
  await assert.rejects(other.decrypt(object), { name: "KeyMismatchError" });
});

test("key files", async () => {
  const key = await ClientKey.generate("toy", toys);
  const file = await key.save("right", CHEAP);
  const again = await ClientKey.load(file, "right", toys);
  assert.deepEqual([...(await again.decrypt(key.encryptMessages([3, 0])))], [3, 0]);
  await assert.rejects(ClientKey.load(file, "wrong", toys), { name: "KeyMismatchError", message: /passphrase/ });
  await assert.rejects(ClientKey.load(file, "", toys), { name: "ParameterError" });
  await assert.rejects(ClientKey.load(file.subarray(0, 200), "right", toys), { name: "SerializationError" });
  await assert.rejects(ClientKey.load(key.encryptMessages([1]), "right", toys), { name: "SerializationError", message: /secret key/ });
  await assert.rejects(key.save("costly", { log2n: 30, r: 8, p: 1 }), { name: "SerializationError" });
  await assert.rejects(key.decrypt(file), { name: "SerializationError", message: /secret key must stay with its owner/ });
});

test("sizes beyond the engine's addresses are refused, not wrapped around", () => {
  for (const bytes of [2 ** 31, 2 ** 32, 2 ** 32 + 16, NaN])
    assert.throws(() => engine.arena((arena) => arena.allocate(bytes)), { name: "FheError", message: /memory/ });
});

test("two clients that make a key at once end with one", async () => {
  const files = new Map();
  const store = {
    read: async (name) => files.get(name) ?? null,
    create: async (name, data) => !files.has(name) && !!files.set(name, data),
    write: async (name, data) => void files.set(name, data),
  };
  const rings = [1, 2].map(() => new Keyring(store, "word", toys, CHEAP));
  const [one, other] = await Promise.all(rings.map((ring) => ring.key("toy")));
  assert.deepEqual(one.keyId, other.keyId);
  assert.deepEqual([...(await other.decrypt(one.encryptMessages([3, 1])))], [3, 1]);
  assert.equal(await rings[0].storedEvaluationKeys("toy"), null);
  const half = rings[0].newEvaluationKeys("toy");
  for (let i = 0; i < 3; ++i) await half.next();
  await half.return();
  assert.equal(await rings[0].storedEvaluationKeys("toy"), null); // nothing is stored of keys that are not complete
  const made = await joined(rings[0].newEvaluationKeys("toy"));
  const object = await rings[1].storedEvaluationKeys("toy");
  assert.deepEqual(Buffer.from(object), made);
  const name = [...files.keys()].find((each) => each.endsWith(".evaluation.keys"));
  for (const damaged of [object.slice(0, -1), object.map((byte, i) => byte ^ Number(i === 70_000)), new Uint8Array()]) {
    files.set(name, damaged);
    assert.equal(await new Keyring(store, "word", toys, CHEAP).storedEvaluationKeys("toy"), null);
  }
  await assert.rejects(new Keyring(store, "wrong", toys, CHEAP).key("toy"), { name: "KeyMismatchError" });
});

test("progress of evaluation keys, cancelled and failing", async () => {
  const key = await ClientKey.generate("toy", toys);
  const seen = [];
  for await (const _ of key.evaluationKeys((done, total) => void seen.push([done, total])));
  assert.equal(seen.at(-1)[0], seen.at(-1)[1]);
  await assert.rejects(joined(key.evaluationKeys(() => false)), CancelledError);
  const failing = key.evaluationKeys(() => {
    throw new TypeError("of the callback");
  });
  await assert.rejects(joined(failing), { name: "TypeError" });
  for await (const _ of key.evaluationKeys()) break; // memory is given back
  assert.deepEqual([...(await key.decrypt(key.encryptMessages([2])))], [2]);
});

test("specifications that are none", () => {
  for (const text of ["", "[]", "{}", '{"cloakwork_client": 1}', '{"cloakwork_client": 2, "parameter_set": "lut2"}', "NaN"])
    assert.throws(() => new ClientSpecification(text, engine), { name: "SerializationError" }, text);
});

test("values beyond the calibrated range are told once, and never shown", () => {
  const { json, samples, warnings } = cases.find((each) => each.name === "beyond a calibrated range");
  const specification = new ClientSpecification(json, toys);
  const told = [];
  specification.inputs(samples, { onWarning: (warning) => told.push(warning) });
  const [message] = warnings;
  assert.deepEqual(told, [{ name: "CalibratedRangeWarning", message, samples: 2, of: 3, values: 3, columns: ["age", "height"] }]);
  const { warn } = console;
  const lines = [];
  console.warn = (...line) => lines.push(line.join(" "));
  try {
    specification.inputs(samples);
  } finally {
    console.warn = warn;
  }
  assert.deepEqual(lines, [`CalibratedRangeWarning: ${message}`]);
});

test("randomness that fails is told", async () => {
  const { getRandomValues } = crypto;
  crypto.getRandomValues = () => {
    throw new Error("none");
  };
  try {
    await assert.rejects(ClientKey.generate("lut2", engine), { name: "FheError", message: /entropy/ });
  } finally {
    crypto.getRandomValues = getRandomValues;
  }
  (await ClientKey.generate("lut2", engine)).close();
});

test("evaluation keys are made in little memory, and what is asked for while they are", async () => {
  const fresh = await Engine.load();
  const key = await ClientKey.generate("lut2", fresh);
  let [largest, turns, bytes] = [0, 0, 0];
  const ticking = setInterval(() => ++turns, 1);
  for await (const part of key.evaluationKeys()) {
    largest = Math.max(largest, part.length);
    bytes += part.length;
  }
  clearInterval(ticking);
  assert.equal(bytes, key.evaluationKeysBytes);
  assert.ok(largest <= 2 ** 18, `${largest} bytes in one part`);
  assert.ok(fresh.memoryBytes < 6 * 2 ** 20 && bytes > 4 * fresh.memoryBytes, `${fresh.memoryBytes} bytes of memory`);
  assert.ok(turns > 3, `${turns} turns of the event loop`);
});

test("a key that is closed while its evaluation keys are made", async () => {
  const key = await ClientKey.generate("toy", toys);
  const parts = key.evaluationKeys();
  for (let i = 0; i < 3; ++i) await parts.next();
  key.close();
  await assert.rejects(joined(parts), { name: "ParameterError", message: /closed/ });
});
