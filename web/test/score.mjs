// Scores samples on a service, for tests/web/test_web_service.py: node score.mjs URL MODEL FOLDER; the folder has samples.json and gets keys/
// and scores.json. CLOAKWORK_LOSE says which PATCH of a key is lost: `before` or `after` the server has it.
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
  if (lost && lose === "before") throw new TypeError("connection refused");
  const answer = await fetch(address, init);
  if (lost && lose === "after") throw new TypeError("connection reset");
  return answer;
}

const temporary = process.env.CLOAKWORK_TEMPORARY === "1";
const client = new Client(url, { keys: temporary ? new TemporaryKeys() : new Keyring(store, "word"), fetch: losing });
const seen = [];
const x = JSON.parse(readFileSync(join(folder, "samples.json"), "utf8"));
const scores = await client.score(model, x, { progress: (what, done, total) => seen.push([what, done, total]) });
const again = await client.score(model, x);
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
