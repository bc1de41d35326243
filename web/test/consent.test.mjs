// What is done only after somebody agreed, whose keys a server gets, and names that no path is made of.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, Engine, Keyring, parameterSet, TemporaryKeys } from "../dist/index.js";
import { Pins, requireKeys } from "../dist/consent.js";
import { MisbehavingServerError } from "../dist/errors.js";
import { segment, serverName } from "../dist/transport.js";
import { oneLine } from "../dist/words.js";

const engine = await Engine.load();
const CHEAP = { log2n: 10, r: 8, p: 1 };
const PIN = { program: "ab".repeat(32), specification: "cd".repeat(32) };
const OTHER = { program: "ab".repeat(32), specification: "ef".repeat(32) };

function memory() {
  const files = new Map();
  return {
    files,
    read: async (name) => files.get(name) ?? null,
    create: async (name, data) => !files.has(name) && Boolean(files.set(name, data)),
    write: async (name, data) => void files.set(name, data),
  };
}

test("a model is pinned at first use, and a change is an error or agreed to", async () => {
  const store = memory();
  const pins = new Pins(store, "https://fhe.example:443");
  await pins.require(null, "m", "1", true, PIN);
  await pins.require(null, "m", "1", true, PIN);
  await assert.rejects(pins.require(null, "m", "1", true, OTHER), { name: "ChangedModelError", message: /Client\.accept\('m'\)/ });
  await assert.rejects(
    pins.require(() => false, "m", "1", true, OTHER),
    { name: "ChangedModelError" },
  );
  await assert.rejects(pins.require(null, "m", "1", true, { ...PIN, program: "00".repeat(32) }), { name: "ChangedModelError" });
  const asked = [];
  await pins.require((question) => asked.push(question) > 0, "m", "1", true, OTHER);
  assert.deepEqual([asked.length, asked[0].kind, asked[0].model, asked[0].version], [1, "model", "m", "1"]);
  await pins.require(null, "m", "1", true, OTHER);
  await assert.rejects(pins.require(null, "m", "1", true, PIN), { name: "ChangedModelError" });
});

test("another newest version is a change, a version that was asked for is not", async () => {
  const pins = new Pins(memory(), "https://fhe.example:443");
  await pins.require(null, "m", "1", true, PIN);
  await assert.rejects(pins.require(null, "m", "2", true, OTHER), {
    name: "ChangedModelError",
    message: /newest version .* is 2, before it was 1/,
  });
  await pins.require(null, "m", "2", false, OTHER);
  await pins.require(null, "m", "1", true, PIN);
  await pins.forget("m");
  await pins.require(null, "m", "3", true, OTHER);
});

test("pins are a server's and a model's own, and a damaged record is asked for", async () => {
  const store = memory();
  const [one, other] = ["https://one.example:443", "https://other.example:443"].map((server) => new Pins(store, server));
  await one.require(null, "m", "1", true, PIN);
  await one.require(null, "n", "1", true, OTHER);
  await other.require(null, "m", "1", true, OTHER);
  const [name] = store.files.keys();
  store.files.set(name, new TextEncoder().encode("{"));
  await assert.rejects(one.require(null, "m", "1", true, PIN), { name: "ChangedModelError" });
  await one.require(() => true, "m", "1", true, PIN);
  await one.require(null, "m", "1", true, PIN);
});

test("keys beyond 100 MB are asked for, with bytes and seconds", async () => {
  await requireKeys(null, "lut2", 100e6);
  await assert.rejects(requireKeys(null, "gate_ap", 450e6), { name: "ParameterError", message: /450 MB .* 45 s to make .* 360 s to send/ });
  await assert.rejects(
    requireKeys(() => false, "gate_ap", 450e6),
    { name: "ParameterError" },
  );
  const asked = [];
  await requireKeys(async (question) => asked.push(question) > 0, "gate_ap", 450e6);
  const [{ kind, set, bytes, makingSeconds, sendingSeconds }] = asked;
  assert.deepEqual([kind, set, bytes, makingSeconds, sendingSeconds], ["keys", "gate_ap", 450e6, 45, 360]);
});

test("every server gets a key of its own, under Python's names, unless they share one", async () => {
  const store = memory();
  const ring = new Keyring(store, "word", engine, CHEAP);
  const urls = ["https://fhe.example", "https://FHE.example:443/", "http://[::1]:8123", "https://fhe.example/tenant"];
  const ids = [];
  for (const url of urls) ids.push(Buffer.from((await new Client(url, { keys: ring, engine }).keys.key("lut2")).keyId).toString("hex"));
  assert.equal(ids[0], ids[1]);
  assert.equal(new Set(ids).size, 3);
  const digest = Buffer.from(parameterSet(engine, "lut2").digest).toString("hex").slice(0, 12);
  assert.deepEqual([...store.files.keys()].map((name) => name.replace(/[0-9a-f]{12}\.key$/, "*.key")).sort(), [
    `lut2-${digest}@1-*.key`,
    `lut2-${digest}@fhe.example-*.key`,
    `lut2-${digest}@fhe.example-*.key`,
  ]);
  const shared = new Client(urls[0], { keys: ring, engine, shareKeys: true });
  await shared.keys.key("lut2");
  assert.ok(store.files.has(`lut2-${digest}.key`)); // where earlier releases have theirs
  const again = new Keyring(store, "word", engine, CHEAP).forServer(serverName(urls[0]));
  assert.equal(Buffer.from((await again.key("lut2")).keyId).toString("hex"), ids[0]);
  const temporary = new TemporaryKeys(engine);
  const [one, other] = await Promise.all(urls.slice(1, 3).map((url) => new Client(url, { keys: temporary, engine }).keys.key("lut2")));
  assert.notDeepEqual(one.keyId, other.keyId);
});

test("names of a server are no paths, its words one line", () => {
  for (const name of ["", ".", "..", "a/b", "a?b", "%2e", "k\r\nX: 1", "é", "k".repeat(201), ".hidden"])
    assert.throws(() => segment(name, "job"), MisbehavingServerError, name);
  for (const name of ["k1", "0f-aa_b.c", "k".repeat(200)]) assert.equal(segment(name, "job"), name);
  assert.equal(oneLine("a\x1b[2J\u202eb\r\n c\u2028d\u0007", 100), "a [2J b c d");
  assert.equal(oneLine("x".repeat(50), 10), `${"x".repeat(10)} ..`);
});
