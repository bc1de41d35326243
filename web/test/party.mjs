// Steps of the client as a process of its own, for tests/web/test_web_client.py: node party.mjs STEP+STEP.. FOLDER, with files in the folder.
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { ClientKey, ClientSpecification, Engine, isNumbers } from "../dist/index.js";

const [step, folder] = process.argv.slice(2);
const PASSPHRASE = "of the test";
const path = (name) => join(folder, name);
const read = (name) => new Uint8Array(readFileSync(path(name)));
const engine = await Engine.load({ environment: existsSync(path("toy")) ? { CLOAKWORK_ALLOW_TOY: "1" } : {} });
const specification = existsSync(path("client.json")) ? new ClientSpecification(readFileSync(path("client.json"), "utf8"), engine) : null;

async function makeKeys(set) {
  const key = await ClientKey.generate(set, engine);
  writeFileSync(path("secret.key"), await key.save(PASSPHRASE, { log2n: 10, r: 8, p: 1 }), { mode: 0o600 });
  const parts = [];
  for await (const part of key.evaluationKeys()) parts.push(part);
  writeFileSync(path("evaluation.keys"), Buffer.concat(parts));
}

const STEPS = {
  entropy: async () => {
    const found = {};
    for (const set of JSON.parse(readFileSync(path("sets.json"), "utf8"))) {
      const key = ClientKey.fromEntropy(
        set,
        Uint8Array.from({ length: 32 }, (_, i) => i),
        engine,
      );
      found[set] = createHash("sha256")
        .update(await key.evaluationKeysObject())
        .digest("hex");
      key.close();
    }
    writeFileSync(path("digests.json"), JSON.stringify(found));
  },
  keys: () => makeKeys(specification.parameters.name),
  encrypt: async () => {
    const key = await ClientKey.load(read("secret.key"), PASSPHRASE, engine);
    writeFileSync(path("input.bin"), specification.encrypt(key, JSON.parse(readFileSync(path("samples.json"), "utf8"))));
  },
  decrypt: async () => {
    const key = await ClientKey.load(read("secret.key"), PASSPHRASE, engine);
    const x = JSON.parse(readFileSync(path("samples.json"), "utf8"));
    const samples = Array.isArray(x) ? x.length : Object.values(x)[0].length;
    const plain = ({ shape, data }) => ({ shape, data: [...data] });
    const written = (answer) => {
      if (Array.isArray(answer)) return answer;
      return isNumbers(answer) ? plain(answer) : Object.fromEntries(Object.entries(answer).map(([name, each]) => [name, plain(each)]));
    };
    const answers = {};
    for (const until of ["scores", "probabilities", "labels"])
      answers[until] = written(await specification.decrypt(key, read("result.bin"), { until, samples }));
    writeFileSync(path("answers.json"), JSON.stringify(answers));
  },
};
for (const each of step.split("+")) await STEPS[each]();
