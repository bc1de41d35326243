// Times of the client in Node, in milliseconds, for tests/benchmarks/web_client.py: node bench.mjs CLIENT_JSON SET.
import { readFileSync } from "node:fs";
import { performance } from "node:perf_hooks";

import { ClientKey, ClientSpecification, Engine } from "../dist/index.js";

const [client, set] = process.argv.slice(2);
const REPEATS = 7;
const engine = await Engine.load();
const specification = new ClientSpecification(readFileSync(client, "utf8"), engine);

async function median(work, repeats = REPEATS) {
  const times = [];
  for (let i = 0; i <= repeats; ++i) {
    const start = performance.now();
    await work();
    times.push(performance.now() - start);
  }
  return times.slice(1).sort((a, b) => a - b)[Math.floor(repeats / 2)]; // the first warms up
}

const key = await ClientKey.generate(set, engine);
const image = [Array.from({ length: specification.inputSize }, (_, i) => (i % 7) / 7)];
const answer = key.encryptTorus(new Float64Array(10), { form: "lwe" });
const times = {
  "secret key": await median(async () => (await ClientKey.generate(set, engine)).close()),
  "evaluation keys, as an object": await median(() => key.evaluationKeysObject()),
  "encryption of an image": await median(() => specification.encrypt(key, image), 50),
  "decryption of ten numbers": await median(() => key.decrypt(answer), 50),
  "key file written (scrypt)": await median(() => key.save("a passphrase"), 3),
};
console.log(JSON.stringify(times));
