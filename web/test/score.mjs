// Scores samples on a service, for tests/web/test_web_service.py: node score.mjs URL MODEL FOLDER; the folder has samples.json and gets keys/
// and scores.json. CLOAKWORK_LOSE says how the second PATCH of a key is lost: `before` or `after` the server has it, when it has a `third` of it,
// because it has `forgotten` the upload, or, from then on, for `good`.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { Client, Keyring, TemporaryKeys } from "../dist/index.js";

const [url, model, folder] = process.argv.slice(2);
const keys = join(folder, "keys");
mkdirSync(keys, { recursive: true, mode: 0o700 });
const store = {
  read: async (name) => (existsSync(join(keys, name)) ? new Uint8Array(readFileSync(join(keys, name))) : null),
  create: async (name, data) => {
    if (existsSync(join(keys, name))) return false;
    writeFileSync(join(keys, name), data, { mode: 0o600 });
    return true;
  },
  write: async (name, data) => writeFileSync(join(keys, name), data, { mode: 0o600 }),
};

const lose = process.env.CLOAKWORK_LOSE ?? "";
let parts = 0;
async function losing(address, init) {
  const lost = init.method === "PATCH" && ++parts === 2;
  if ((lost && lose === "before") || (parts >= 2 && lose === "good")) throw new TypeError("connection refused");
  if (lost && lose === "forgotten") await fetch(address, { method: "DELETE" });
  const body = lost && lose === "third" ? init.body.subarray(0, Math.floor(init.body.length / 3)) : init.body;
  const answer = await fetch(address, { ...init, body });
  if (lost && ["after", "third"].includes(lose)) throw new TypeError("connection reset");
  return answer;
}

const temporary = process.env.CLOAKWORK_TEMPORARY === "1";
const client = new Client(url, { keys: temporary ? new TemporaryKeys() : new Keyring(store, "word"), fetch: losing });
const seen = [];
const x = JSON.parse(readFileSync(join(folder, "samples.json"), "utf8"));
await client.model(model);
// Two at once: the keys are made and sent by one of them.
const [scores, again] = await Promise.all([
  client.score(model, x, { progress: (what, done, total) => seen.push([what, done, total]) }),
  client.score(model, x),
]);
const { predictions } = scores;
writeFileSync(
  join(folder, "scores.json"),
  JSON.stringify({
    ...scores,
    predictions: Array.isArray(predictions) ? predictions : { shape: predictions.shape, data: [...predictions.data] },
    again: again.uploadBytes,
    parts,
    seen,
    models: await client.models(),
  }),
);
await client.close();
