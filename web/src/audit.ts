// The file of an audit: models/audit/audit_file.py, section "Audit files" of docs/reference/wire_format.md.

import { ServiceError } from "./errors.js";
import { digestOf } from "./sha256.js";
import { hexadecimal } from "./wire.js";

/** One request and its answer, both encrypted, and what the server says of them. */
export interface Exchange {
  request: Uint8Array;
  answer: Uint8Array;
  /** The public id of the server's audit key; empty where the server has none. */
  auditKey: string;
  /** The server's name of the evaluation keys that it used. */
  keyName: string;
}

/** An object by its size and SHA-256. */
export interface Part {
  bytes: number;
  sha256: string;
}

export interface AuditManifest {
  model: string;
  version: string;
  program: string;
  audit_key: string;
  service: string;
  time: string;
  keys: Part & { included: boolean };
  exchanges: { request: Part; answer: Part }[];
}

export interface AuditFile {
  manifest: AuditManifest;
  /** What the file consists of, one after the other. */
  parts: Uint8Array[];
}

/** What an audit file is about, beside the objects in it. */
export type AuditFacts = Pick<AuditManifest, "model" | "version" | "program" | "service">;

const MAGIC = [0x43, 0x4c, 0x4b, 0x41]; // CLKA
const VERSION = 1;
const PREFIX_BYTES = 16;

/** `keys`: the evaluation keys as the server names them; `object`: they themselves, to be put into the file. */
export async function auditFile(facts: AuditFacts, exchanges: Exchange[], keys: Part, object: Uint8Array | null): Promise<AuditFile> {
  const [first] = exchanges;
  if (first === undefined || first.auditKey === "")
    throw new ServiceError(
      "audit: the server does not say which audit key it has: an earlier release, whose answers nobody can make again",
    );
  if (exchanges.some(({ auditKey }) => auditKey !== first.auditKey))
    throw new ServiceError("audit: the server changed its audit key while it answered; score again");
  if (object !== null && (await partOf(object)).sha256 !== keys.sha256)
    throw new ServiceError("audit: the server computed with other evaluation keys than those that are here; score again");
  const manifest: AuditManifest = {
    ...facts,
    audit_key: first.auditKey,
    time: `${new Date().toISOString().slice(0, 19)}Z`,
    keys: { bytes: keys.bytes, sha256: keys.sha256, included: object !== null },
    exchanges: await Promise.all(
      exchanges.map(async ({ request, answer }) => ({ request: await partOf(request), answer: await partOf(answer) })),
    ),
  };
  const text = new TextEncoder().encode(JSON.stringify(manifest));
  const prefix = new DataView(new ArrayBuffer(PREFIX_BYTES));
  MAGIC.forEach((byte, i) => prefix.setUint8(i, byte));
  prefix.setUint16(4, VERSION, true);
  prefix.setBigUint64(8, BigInt(text.length), true);
  const objects = exchanges.flatMap(({ request, answer }) => [request, answer]);
  return { manifest, parts: [new Uint8Array(prefix.buffer), text, ...(object === null ? [] : [object]), ...objects] };
}

async function partOf(data: Uint8Array): Promise<Part> {
  return { bytes: data.length, sha256: hexadecimal(await digestOf(data)) };
}
