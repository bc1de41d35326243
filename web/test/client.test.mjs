// What the module refuses, and how: a clear error of its class, never a trap, never the secret.
import assert from "node:assert/strict";
import { test } from "node:test";

import { CancelledError, ClientKey, ClientSpecification, Engine, Keyring } from "../dist/index.js";

const engine = await Engine.load();
const toys = await Engine.load({ environment: { CLOAKWORK_ALLOW_TOY: "1" } });
const CHEAP = { log2n: 10, r: 8, p: 1 };

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
  assert.throws(() => JSON.stringify(key), { name: "ParameterError" });
  key.close();
  assert.throws(() => key.encryptMessages([1]), { name: "ParameterError", message: /closed/ });
});

test("every byte of an object that is changed, and every length, is refused", async () => {
  const key = await ClientKey.generate("toy", toys);
  const object = key.encryptMessages([1, 2], { form: "seeded" });
  assert.deepEqual([...key.decrypt(object)], [1, 2]);
  for (let i = 0; i < object.length; ++i) {
    const changed = object.slice();
    changed[i] ^= 1;
    assert.throws(() => key.decrypt(changed), { name: /SerializationError|KeyMismatchError/ }, `byte ${i}`);
  }
  for (let length = 0; length < object.length; ++length)
    assert.throws(() => key.decrypt(object.subarray(0, length)), { name: "SerializationError" }, `length ${length}`);
  assert.throws(() => key.decrypt(new Uint8Array([...object, 0])), { name: "SerializationError" });
  const other = await ClientKey.generate("toy", toys);
  assert.throws(() => other.decrypt(object), { name: "KeyMismatchError" });
});

test("key files", async () => {
  const key = await ClientKey.generate("toy", toys);
  const file = await key.save("right", CHEAP);
  const again = await ClientKey.load(file, "right", toys);
  assert.deepEqual([...again.decrypt(key.encryptMessages([3, 0]))], [3, 0]);
  await assert.rejects(ClientKey.load(file, "wrong", toys), { name: "KeyMismatchError", message: /passphrase/ });
  await assert.rejects(ClientKey.load(file, "", toys), { name: "ParameterError" });
  await assert.rejects(ClientKey.load(file.subarray(0, 200), "right", toys), { name: "SerializationError" });
  await assert.rejects(ClientKey.load(key.encryptMessages([1]), "right", toys), { name: "SerializationError", message: /secret key/ });
  await assert.rejects(key.save("costly", { log2n: 30, r: 8, p: 1 }), { name: "SerializationError" });
  assert.throws(() => key.decrypt(file), { name: "SerializationError", message: /secret key must stay with its owner/ });
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
  assert.deepEqual([...other.decrypt(one.encryptMessages([3, 1]))], [3, 1]);
  const object = await rings[0].evaluationKeys("toy");
  assert.equal(await rings[1].evaluationKeys("toy"), object); // the stored one
  files.set(
    [...files.keys()].find((name) => name.endsWith(".evaluation.keys")),
    object.slice(0, -1),
  );
  const third = new Keyring(store, "word", toys, CHEAP);
  assert.equal((await third.evaluationKeys("toy")).length, object.length); // made again
  await assert.rejects(new Keyring(store, "wrong", toys, CHEAP).key("toy"), { name: "KeyMismatchError" });
});

test("progress of evaluation keys, cancelled and failing", async () => {
  const key = await ClientKey.generate("toy", toys);
  const seen = [];
  for await (const _ of key.evaluationKeys((done, total) => void seen.push([done, total])));
  assert.equal(seen.at(-1)[0], seen.at(-1)[1]);
  await assert.rejects(key.evaluationKeys(() => false).next(), CancelledError);
  const failing = key.evaluationKeys(() => {
    throw new TypeError("of the callback");
  });
  await assert.rejects(failing.next(), { name: "TypeError" });
  for await (const _ of key.evaluationKeys()) break; // memory is given back
  assert.deepEqual([...key.decrypt(key.encryptMessages([2]))], [2]);
});

test("specifications that are none", () => {
  for (const text of ["", "[]", "{}", '{"cloakwork_client": 1}', '{"cloakwork_client": 2, "parameter_set": "lut2"}', "NaN"])
    assert.throws(() => new ClientSpecification(text, engine), { name: "SerializationError" }, text);
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
