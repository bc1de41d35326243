// What an audit of the last answer needs: a file to download, the digests of what is in it, and the command that computes it again.

import type { AuditFile, AuditManifest } from "../src/audit.js";
import { found, made, reveal } from "./elements.js";
import type { Scorer } from "./scorer.js";
import { bytes, inWords } from "./words.js";

const RELEASE_MS = 60_000; // a browser may read the file after the click

export function hideAudit(): void {
  found("audit", HTMLElement).hidden = true;
}

/** After an answer; of which the worker keeps what was sent and what came. */
export function offerAudit(scorer: Scorer, facts: Record<string, unknown>): void {
  const stated = facts["evaluation_key_bytes"];
  const size = typeof stated === "number" ? stated : NaN;
  found("audit-size", HTMLSpanElement).textContent =
    `Put the evaluation keys into the file (${bytes(size)}). Without them the audit uses the copy of the service, as long as the service keeps it.`;
  found("audited", HTMLDivElement).hidden = true;
  found("audit-error", HTMLParagraphElement).hidden = true;
  const button = found("audit-download", HTMLButtonElement);
  button.disabled = false;
  button.onclick = () => void download(scorer, button);
  found("audit", HTMLElement).hidden = false;
}

async function download(scorer: Scorer, button: HTMLButtonElement): Promise<void> {
  const problem = found("audit-error", HTMLParagraphElement);
  problem.hidden = button.disabled = true;
  try {
    const file = await scorer.ask({ kind: "audit", withKeys: found("audit-keys", HTMLInputElement).checked });
    const name = `${file.manifest.model}-${file.manifest.version}.clka`;
    save(name, file);
    show(name, file.manifest);
  } catch (error) {
    problem.textContent = inWords(error);
    problem.hidden = false;
    reveal(problem);
  } finally {
    button.disabled = false;
  }
}

function save(name: string, { parts }: AuditFile): void {
  const address = URL.createObjectURL(new Blob(parts as BlobPart[], { type: "application/octet-stream" }));
  made("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), RELEASE_MS);
}

function show(name: string, manifest: AuditManifest): void {
  const digests = [
    ["Program", manifest.program],
    ["Evaluation keys, SHA-256", manifest.keys.sha256],
    ...manifest.exchanges.flatMap(({ request, answer }) => [
      ["Request, SHA-256", request.sha256],
      ["Answer, SHA-256", answer.sha256],
    ]),
    ["Audit key of the service", manifest.audit_key],
  ] as [string, string][];
  const rows = digests.flatMap(([term, value]) => [
    made("dt", { textContent: term }),
    made("dd", { className: "digest", textContent: value }),
  ]);
  found("audit-digests", HTMLDListElement).replaceChildren(...rows);
  found("audit-note", HTMLParagraphElement).textContent = manifest.keys.included
    ? "The evaluation keys are in the file."
    : "The evaluation keys are not in the file, so the audit uses the copy of the service. Without a passphrase that copy is deleted when you leave this page.";
  found("audit-command", HTMLPreElement).textContent = `cloakwork replay ${name} --data FOLDER`;
  const audited = found("audited", HTMLDivElement);
  audited.hidden = false;
  reveal(audited);
}
