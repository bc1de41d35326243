// Where keys are: in memory for one session, or in a store, the secret one encrypted with a passphrase. app/client/keyring.py is Python's.

import { ClientKey } from "./client_key.js";
import { defaultEngine, type Engine, type Progress } from "./engine.js";
import { FheError, ParameterError } from "./errors.js";
import { DEFAULT_COST, type ScryptCost } from "./keystore.js";
import { parameterSet } from "./parameters.js";
import { digestOf, sha256 } from "./sha256.js";
import { CHECKSUM_BYTES, equalBytes, EVALUATION_KEYS, hexadecimal, readHeader } from "./wire.js";

/** Files by name: an IndexedDB database, a folder, .. */
export interface Store {
  read(name: string): Promise<Uint8Array | null>;
  /** False, and nothing written, where there is one of that name: two tabs that make a key at once end with one. */
  create(name: string, data: Uint8Array): Promise<boolean>;
  write(name: string, data: Uint8Array): Promise<void>;
  /** Runs the work while nobody else who uses this store runs work of that name; a store without it has one user. */
  exclusively?<T>(name: string, work: () => Promise<T>): Promise<T>;
}

const MOST_KEPT_BYTES = 64 << 20; // of one set's evaluation keys in memory

export interface Keys {
  /** Whether the keys outlive this object. */
  readonly lasting: boolean;
  /** Where they are kept; null for keys in memory. */
  readonly store: Store | null;
  /** Those for one server (`serverName`): services that share what they see do not recognise their clients by a key. */
  forServer(server: string): Keys;
  key(set: string): Promise<ClientKey>;
  /** The object of the wire format that a server gets; null where it has yet to be made. */
  storedEvaluationKeys(set: string): Promise<Uint8Array | null>;
  /** A new one in consecutive parts, made as they are asked for. */
  newEvaluationKeys(set: string, progress?: Progress | null): AsyncGenerator<Uint8Array, void, void>;
  /** Overwrites secret keys in memory. */
  close(): void;
}

/** Keys of this object alone, never written. Evaluation keys are kept for audits and for a server that forgets them, where they are not large. */
export class TemporaryKeys implements Keys {
  readonly lasting: boolean = false;
  readonly store: Store | null = null;
  protected readonly engine: Engine | null;
  readonly #ofServers = new Map<string, TemporaryKeys>();
  readonly #keys = new Map<string, Promise<ClientKey>>();
  readonly #evaluationKeys = new Map<string, Uint8Array>();

  constructor(engine: Engine | null = null) {
    this.engine = engine;
  }

  forServer(server: string): TemporaryKeys {
    const keys = this.#ofServers.get(server) ?? this.keysOf(server);
    this.#ofServers.set(server, keys);
    return keys;
  }

  protected keysOf(_server: string): TemporaryKeys {
    return new TemporaryKeys(this.engine);
  }

  /** Asked for once while it is made or opened. */
  key(set: string): Promise<ClientKey> {
    let found = this.#keys.get(set);
    if (found === undefined) {
      found = this.openKey(set);
      found.catch(() => this.#keys.delete(set));
      this.#keys.set(set, found);
    }
    return found;
  }

  storedEvaluationKeys(set: string): Promise<Uint8Array | null> {
    return Promise.resolve(this.#evaluationKeys.get(set) ?? null);
  }

  async *newEvaluationKeys(set: string, progress: Progress | null = null): AsyncGenerator<Uint8Array, void, void> {
    const key = await this.key(set);
    if (key.evaluationKeysBytes > MOST_KEPT_BYTES) yield* key.evaluationKeys(progress);
    else yield* gathered(key, progress, (whole) => this.#evaluationKeys.set(set, whole));
  }

  close(): void {
    for (const key of this.#keys.values()) void key.then((found) => found.close()).catch(() => undefined);
    this.#keys.clear();
    this.#evaluationKeys.clear();
    for (const keys of this.#ofServers.values()) keys.close();
    this.#ofServers.clear();
  }

  protected openKey(set: string): Promise<ClientKey> {
    return ClientKey.generate(set, this.engine ?? undefined);
  }
}

/**
 * Keys in a store under the names that Python's keyring gives its files: `SET-DIGEST.key`, encrypted, and `SET-DIGEST.evaluation.keys`, of one
 * server with its name after an @. Those without are shared by servers: by `shareKeys`, and by earlier releases.
 */
export class Keyring extends TemporaryKeys {
  override readonly lasting = true;
  override readonly store: Store;
  readonly #passphrase: string;
  readonly #cost: ScryptCost;
  readonly #server: string;

  constructor(store: Store, passphrase: string, engine: Engine | null = null, cost: ScryptCost = DEFAULT_COST, server = "") {
    super(engine);
    if (passphrase === "") throw new ParameterError("passphrase: expected at least one character, got none; choose a passphrase");
    this.store = store;
    this.#passphrase = passphrase;
    this.#cost = cost;
    this.#server = server;
  }

  protected override keysOf(server: string): Keyring {
    return new Keyring(this.store, this.#passphrase, this.engine, this.#cost, server);
  }

  /** A secret key that is there is never replaced, because its ciphertexts would be lost with it. */
  protected override async openKey(set: string): Promise<ClientKey> {
    const engine = this.engine ?? (await defaultEngine());
    const name = `${stem(engine, set, this.#server)}.key`;
    const file = await this.store.read(name);
    if (file !== null) return ClientKey.load(file, this.#passphrase, engine);
    const key = await ClientKey.generate(set, engine);
    if (await this.store.create(name, await key.save(this.#passphrase, this.#cost))) return key;
    key.close();
    return this.openKey(set);
  }

  /** Null for those that are missing, damaged, of an earlier release or of another secret key. */
  override async storedEvaluationKeys(set: string): Promise<Uint8Array | null> {
    const key = await this.key(set);
    const found = await this.store.read(evaluationName(key.engine, set, this.#server));
    return found !== null && (await belongs(found, key)) ? found : null;
  }

  /** Written to the store when they are complete, before the last part is given. */
  override async *newEvaluationKeys(set: string, progress: Progress | null = null): AsyncGenerator<Uint8Array, void, void> {
    const key = await this.key(set);
    yield* gathered(key, progress, (whole) => this.store.write(evaluationName(key.engine, set, this.#server), whole));
  }
}

/** New evaluation keys in parts; `keep` gets all of them before the last part is given. */
async function* gathered(
  key: ClientKey,
  progress: Progress | null,
  keep: (whole: Uint8Array) => unknown,
): AsyncGenerator<Uint8Array, void, void> {
  const whole = new Uint8Array(key.evaluationKeysBytes);
  let offset = 0;
  for await (const part of key.evaluationKeys(progress)) {
    whole.set(part, offset);
    offset += part.length;
    if (offset === whole.length) await keep(whole);
    yield part;
  }
}

/** A store of the browser: one database, one object for each name. */
export class IndexedDbStore implements Store {
  readonly #database: Promise<IDBDatabase>;
  readonly #name: string;

  constructor(name = "cloakwork") {
    this.#name = name;
    const opening = indexedDB.open(name, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("keys");
    this.#database = answered(opening);
  }

  async read(name: string): Promise<Uint8Array | null> {
    const keys = (await this.#database).transaction("keys").objectStore("keys");
    return ((await answered(keys.get(name))) as Uint8Array | undefined) ?? null;
  }

  async create(name: string, data: Uint8Array): Promise<boolean> {
    const keys = (await this.#database).transaction("keys", "readwrite").objectStore("keys");
    if ((await answered(keys.count(name))) > 0) return false; // within one transaction
    await answered(keys.add(data, name));
    return true;
  }

  async write(name: string, data: Uint8Array): Promise<void> {
    await answered((await this.#database).transaction("keys", "readwrite").objectStore("keys").put(data, name));
  }

  /** Among all tabs of the origin. Browsers have such locks where they have WebCrypto: in pages from https or this machine. */
  exclusively<T>(name: string, work: () => Promise<T>): Promise<T> {
    return "locks" in navigator ? (navigator.locks.request(`${this.#name}: ${name}`, work) as Promise<T>) : work();
  }
}

function answered<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(new FheError(`keys: the browser's database refused (${request.error?.name ?? "no reason"})`));
  });
}

function stem(engine: Engine, set: string, server: string): string {
  const name = `${set}-${hexadecimal(parameterSet(engine, set).digest).slice(0, SHORT_DIGEST)}`;
  if (server === "") return name;
  const host = /^\w+:\/\/(.*):\d+/.exec(server)?.[1] ?? "";
  const digest = hexadecimal(sha256(new TextEncoder().encode(server))).slice(0, SHORT_DIGEST);
  return `${name}@${host.replace(/[^a-z0-9.-]/gi, "").slice(0, LONGEST_HOST)}-${digest}`;
}

const SHORT_DIGEST = 12; // hexadecimal digits
const LONGEST_HOST = 80; // letters of it in a name

function evaluationName(engine: Engine, set: string, server: string): string {
  return `${stem(engine, set, server)}.evaluation.keys`;
}

async function belongs(object: Uint8Array, key: ClientKey): Promise<boolean> {
  try {
    const { keyId } = readHeader(key.engine, object, [EVALUATION_KEYS]);
    const end = object.length - CHECKSUM_BYTES;
    return keyId !== null && equalBytes(keyId, key.keyId) && equalBytes(await digestOf(object.subarray(0, end)), object.subarray(end));
  } catch (error) {
    if (error instanceof FheError) return false;
    throw error;
  }
}
