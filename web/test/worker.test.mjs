// dist/browser.js is one file beside client.wasm: what a page's worker loads, without packages to be found.
import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";

const WORKER = `
import { parentPort } from "node:worker_threads";
import { ClientKey } from "./browser.js";
const key = await ClientKey.generate("lut2");
const keys = await key.evaluationKeysObject((done, total) => parentPort.postMessage({ done, total }));
parentPort.postMessage({ values: [...(await key.decrypt(key.encryptMessages([3, 1, 2])))], bytes: keys.length });
`;

test("in a worker, from a folder of its own", async () => {
  const folder = mkdtempSync(join(tmpdir(), "cloakwork-"));
  try {
    for (const name of ["browser.js", "client.wasm"]) copyFileSync(new URL(`../dist/${name}`, import.meta.url), join(folder, name));
    writeFileSync(join(folder, "package.json"), '{"type": "module"}');
    writeFileSync(join(folder, "worker.js"), WORKER);
    const messages = [];
    await new Promise((resolve, reject) => {
      const worker = new Worker(pathToFileURL(join(folder, "worker.js")));
      worker.on("message", (message) => messages.push(message));
      worker.on("error", reject);
      worker.on("exit", resolve);
    });
    assert.deepEqual(messages.at(-1).values, [3, 1, 2]);
    assert.ok(messages.at(-1).bytes > 2 ** 20 && messages.length > 10);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
