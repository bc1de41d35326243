// A process that asks servers of cases with the client of web/dist, one after the other, and says how each ended and what it took: Node's
// python_client.py, with its lines of JSON. `--dist FOLDER`: another build, `--old`: of a release without these limits.
import { readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const { values } = parseArgs({ options: { dist: { type: "string" }, old: { type: "boolean", default: false } } });
const folder = values.dist ?? new URL("../../../web/dist", import.meta.url).pathname;
const { Client, Engine, FheError, TemporaryKeys } = await import(pathToFileURL(`${folder}/index.js`));

// The test's variable for toy sets, which must not help a server that names one.
const engine = await Engine.load({ environment: { CLOAKWORK_ALLOW_TOY: "1" } });
const keys = new TemporaryKeys(engine); // made once for all cases

function samplesOf(kind) {
  if (kind === "many") return Array.from({ length: 5000 }, () => [0.3]);
  if (kind === "texts") return Array(5).fill("lorem ipsum dolor sit amet ".repeat(400));
  return kind === "pair" ? [[0.3, 0.4]] : [[0.3]];
}

async function ask(url, samples, patience) {
  const client = new Client(url, { keys, engine, ...(values.old ? {} : { timeoutSeconds: patience, jobTimeoutSeconds: patience, shareKeys: true }) });
  try {
    await client.predict("m", samplesOf(samples), { onWarning: () => undefined });
  } catch (error) {
    return [error instanceof FheError ? "error" : "bare", error?.name ?? "", String(error?.message ?? error)];
  }
  return ["answer", "", ""];
}

function peakMib() {
  return Number(/VmHWM:\s*(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))[1]) / 1024;
}

for await (const line of createInterface({ input: process.stdin })) {
  const { name, url, samples, patience } = JSON.parse(line); // seconds; of users they are minutes
  globalThis.gc?.(); // what the case before left
  writeFileSync("/proc/self/clear_refs", "5"); // the peak begins anew
  const start = performance.now();
  const [ended, error, message] = await ask(url, samples, patience);
  const seconds = (performance.now() - start) / 1000;
  console.log(JSON.stringify({ name, ended, error, message: message.slice(0, 3000), seconds, peak_mib: peakMib() }));
}
