// What a person is asked before a client does it for a server.

import { ConsentError } from "./errors.js";
import type { Store } from "./keyring.js";
import { MOST_KEY_BYTES_UNASKED } from "./limits.js";
import { sha256 } from "./sha256.js";
import { hexadecimal } from "./wire.js";
import { oneLine } from "./words.js";

/** Digests in hexadecimal: of the program, and of the whole specification, which also says what is done to samples before encryption. */
export interface Pin {
  program: string;
  specification: string;
}

export type ConsentQuestion =
  /** Evaluation keys of a set, how large they are and how long making and sending them takes at 20 Mbit/s. */
  | { kind: "keys"; set: string; bytes: number; seconds: number; message: string }
  /** A version of a model has another specification than at its first use. */
  | { kind: "specification"; model: string; version: string; pinned: Pin; offered: Pin; message: string };

export type Confirm = (question: ConsentQuestion) => boolean | Promise<boolean>;

interface Place {
  origin: string;
  model: string;
  version: string;
}

const MADE_BYTES_A_SECOND = 70e6; // of keys, on one core
const SENT_BYTES_A_SECOND = 2.5e6; // 20 Mbit/s
const LONGEST_NAME_SHOWN = 80;

/** ConsentError where keys are large and nobody agreed to them; who agreed once is not asked again for the same server and set. */
export async function agreed(confirm: Confirm | null, store: Store | null, origin: string, set: string, bytes: number): Promise<void> {
  if (bytes <= MOST_KEY_BYTES_UNASKED) return;
  const name = recordName("keys", [origin, set]);
  if ((await store?.read(name)) != null) return;
  const seconds = Math.ceil(bytes / MADE_BYTES_A_SECOND + bytes / SENT_BYTES_A_SECOND);
  const message = `keys of ${(bytes / 1e6).toFixed(0)} MB (parameter set '${set}') have to be made and sent to ${origin}, about ${seconds} s at 20 Mbit/s`;
  if (confirm === null || !(await confirm({ kind: "keys", set, bytes, seconds, message })))
    throw new ConsentError(`${message}; pass confirm to be asked, and agree`);
  await store?.write(name, new TextEncoder().encode(JSON.stringify({ origin, set, bytes })));
}

/** ConsentError where a version of a model has another specification than when it was first used, and nobody agreed to that. */
export async function requirePinned(confirm: Confirm | null, store: Store, place: Place, offered: Pin): Promise<void> {
  const name = recordName("pin", [place.origin, place.model, place.version]);
  const record = new TextEncoder().encode(JSON.stringify({ ...place, ...offered }));
  const pinned = pinOf(await store.read(name));
  if (pinned !== null && (pinned.program !== offered.program || pinned.specification !== offered.specification)) {
    const [model, version] = [place.model, place.version].map((each) => oneLine(each, LONGEST_NAME_SHOWN)) as [string, string];
    const what = pinned.program === offered.program ? "the same program but other steps around it" : "another program";
    const message =
      `model '${model}', version ${version}: ${place.origin} now gives ${what} (${offered.program.slice(0, 16)}, ` +
      `at first use ${pinned.program.slice(0, 16)}), which versions never should`;
    if (confirm === null || !(await confirm({ kind: "specification", model, version, pinned, offered, message })))
      throw new ConsentError(`${message}; ask the owner of the service, and pass confirm to accept it`);
  }
  if (pinned === null || pinned.specification !== offered.specification) await store.write(name, record);
}

function recordName(kind: "keys" | "pin", parts: string[]): string {
  return `${kind}-${hexadecimal(sha256(new TextEncoder().encode(parts.join("\n")))).slice(0, 32)}.json`;
}

function pinOf(record: Uint8Array | null): Pin | null {
  if (record === null) return null;
  try {
    const { program, specification } = JSON.parse(new TextDecoder().decode(record)) as Record<string, unknown>;
    return { program: String(program), specification: String(specification) };
  } catch {
    return { program: "", specification: "" }; // damaged: as if it were another one
  }
}
