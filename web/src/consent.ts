// What a client does only after its user agreed: large keys (app/client/agreement.py), and a model that is not what it was (app/client/pins.py).

import { ChangedModelError, ParameterError } from "./errors.js";
import type { Store } from "./keyring.js";
import { MOST_KEY_BYTES_UNASKED } from "./limits.js";
import { sha256 } from "./sha256.js";
import { hexadecimal } from "./wire.js";
import { oneLine } from "./words.js";

/** What one version of a model was: the digest of its program, and SHA-256 of its whole specification, which says what is done to samples. */
export interface Pin {
  program: string;
  specification: string;
}

export type ConsentQuestion =
  /** Evaluation keys beyond 100 MB, and how long a core makes them and 10 Mbit/s send them. */
  | { kind: "keys"; set: string; bytes: number; makingSeconds: number; sendingSeconds: number; message: string }
  /** A model is another version than before, or its version has another specification than at first use. */
  | { kind: "model"; model: string; version: string; offered: Pin; message: string };

/** Whether the user agrees. */
export type Confirm = (question: ConsentQuestion) => boolean | Promise<boolean>;

const MADE_BYTES_A_SECOND = 10e6;
const SENT_BYTES_A_SECOND = 1.25e6; // 10 Mbit/s
const LONGEST_NAME_SHOWN = 80;

/** ParameterError where keys that have to be made are large, and nobody agreed. */
export async function requireKeys(confirm: Confirm | null, set: string, bytes: number): Promise<void> {
  if (bytes <= MOST_KEY_BYTES_UNASKED) return;
  const [makingSeconds, sendingSeconds] = [MADE_BYTES_A_SECOND, SENT_BYTES_A_SECOND].map((rate) => Math.ceil(bytes / rate)) as [
    number,
    number,
  ];
  const message =
    `the server's model needs evaluation keys of ${(bytes / 1e6).toFixed(0)} MB (parameter set '${set}'): about ${makingSeconds} s to make on a core ` +
    `and ${sendingSeconds} s to send over 10 Mbit/s`;
  if (confirm === null || !(await confirm({ kind: "keys", set, bytes, makingSeconds, sendingSeconds, message })))
    throw new ParameterError(`keys: ${message}, and nobody agreed to that; pass a confirm that does if they are wanted`);
}

/** What the models of servers were at first use. */
export class Pins {
  readonly #store: Store;
  readonly #server: string;

  constructor(store: Store, server: string) {
    this.#store = store;
    this.#server = server;
  }

  /**
   * ChangedModelError where a model is not what it was, or, where no version was asked for, another version than before, and nobody agreed;
   * whoever agrees has it pinned anew.
   */
  async require(confirm: Confirm | null, name: string, version: string, anyVersion: boolean, offered: Pin): Promise<void> {
    const pins = await this.#read(name);
    const pinned = pins.get(version);
    const isKnown = pinned?.program === offered.program && pinned.specification === offered.specification;
    if (isKnown) return;
    const isFirst = pins.size === 0 || (pinned === undefined && !anyVersion);
    if (!isFirst) {
      const [model, shownVersion] = [oneLine(name, LONGEST_NAME_SHOWN), oneLine(version, LONGEST_NAME_SHOWN)];
      const what =
        pinned === undefined
          ? `its newest version at ${this.#server} is ${shownVersion}, before it was ${oneLine([...pins.keys()].join(", "), LONGEST_NAME_SHOWN)}`
          : `its version ${shownVersion} at ${this.#server} has another program or other steps than at first use`;
      const message = `model '${model}': ${what}`;
      if (confirm === null || !(await confirm({ kind: "model", model, version: shownVersion, offered, message })))
        throw new ChangedModelError(
          `${message}; nothing was encrypted for it. Ask who runs the server; Client.accept('${model}') takes it as it is now, a confirm that agrees too`,
        );
      pins.clear();
    }
    pins.set(version, offered);
    await this.#write(name, pins);
  }

  async forget(name: string): Promise<void> {
    await this.#write(name, new Map());
  }

  async #read(name: string): Promise<Map<string, Pin>> {
    const record = await this.#store.read(this.#recordName(name));
    if (record === null) return new Map();
    try {
      const { versions } = JSON.parse(new TextDecoder().decode(record)) as { versions: Record<string, Pin> };
      return new Map(Object.entries(versions).map(([version, { program, specification }]) => [version, { program, specification }]));
    } catch {
      return new Map([["that cannot be read", { program: "", specification: "" }]]); // damaged: asked for, as any change
    }
  }

  async #write(name: string, pins: Map<string, Pin>): Promise<void> {
    const fields = { cloakwork_pins: 1, server: this.#server, model: name, versions: Object.fromEntries(pins) };
    await this.#store.write(this.#recordName(name), new TextEncoder().encode(JSON.stringify(fields)));
  }

  #recordName(name: string): string {
    return `pins-${hexadecimal(sha256(new TextEncoder().encode(`${this.#server}\n${name}`))).slice(0, 32)}.json`;
  }
}
