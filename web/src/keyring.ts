// Where keys are: in memory for one session, or in a store, the secret one encrypted with a passphrase. app/client/keyring.py is Python's.

import { ClientKey } from "./client_key.js";
import { defaultEngine, type Engine, type Progress } from "./engine.js";
import { FheError, ParameterError } from "./errors.js";
import { DEFAULT_COST, type ScryptCost } from "./keystore.js";
import { parameterSet } from "./parameters.js";
import { CHECKSUM_BYTES, digestOf, equalBytes, EVALUATION_KEYS, hexadecimal, readHeader } from "./wire.js";

/** Files by name: an IndexedDB database, a folder, .. */
export interface Store {
  read(name: string): Promise<Uint8Array | null>;
  /** False, and nothing written, where there is one of that name: two tabs that make a key at once end with one. */
  create(name: string, data: Uint8Array): Promise<boolean>;
  write(name: string, data: Uint8Array): Promise<void>;
}

export interface Keys {
  /** Whether the keys outlive this object. */
  readonly lasting: boolean;
  key(set: string): Promise<ClientKey>;
  /** The object of the wire format that a server gets. */
  evaluationKeys(set: string, progress?: Progress | null): Promise<Uint8Array>;
  /** Overwrites secret keys in memory. */
  close(): void;
}

/** Keys of this object alone, never written. */
export class TemporaryKeys implements Keys {
  readonly lasting: boolean = false;
  protected readonly engine: Engine | null;
  readonly #keys = new Map<string, Promise<ClientKey>>();
  readonly #objects = new Map<string, Promise<Uint8Array>>();

  constructor(engine: Engine | null = null) {
    this.engine = engine;
  }

  key(set: string): Promise<ClientKey> {
    return once(this.#keys, set, () => this.openKey(set));
  }

  evaluationKeys(set: string, progress: Progress | null = null): Promise<Uint8Array> {
    return once(this.#objects, set, async () => this.openEvaluationKeys(set, await this.key(set), progress));
  }

  close(): void {
    for (const key of this.#keys.values()) void key.then((found) => found.close()).catch(() => undefined);
    this.#keys.clear();
    this.#objects.clear();
  }

  protected openKey(set: string): Promise<ClientKey> {
    return ClientKey.generate(set, this.engine ?? undefined);
  }

  protected openEvaluationKeys(_set: string, key: ClientKey, progress: Progress | null): Promise<Uint8Array> {
    return key.evaluationKeysObject(progress);
  }
}

/** Keys in a store under the names that Python's keyring gives its files: `SET-DIGEST.key`, encrypted, and `SET-DIGEST.evaluation.keys`. */
export class Keyring extends TemporaryKeys {
  override readonly lasting = true;
  readonly #store: Store;
  readonly #passphrase: string;
  readonly #cost: ScryptCost;

  constructor(store: Store, passphrase: string, engine: Engine | null = null, cost: ScryptCost = DEFAULT_COST) {
    super(engine);
    if (passphrase === "") throw new ParameterError("passphrase: expected at least one character, got none; choose a passphrase");
    this.#store = store;
    this.#passphrase = passphrase;
    this.#cost = cost;
  }

  /** A secret key that is there is never replaced, because its ciphertexts would be lost with it. */
  protected override async openKey(set: string): Promise<ClientKey> {
    const engine = this.engine ?? (await defaultEngine());
    const name = `${stem(engine, set)}.key`;
    const file = await this.#store.read(name);
    if (file !== null) return ClientKey.load(file, this.#passphrase, engine);
    const key = await ClientKey.generate(set, engine);
    if (await this.#store.create(name, await key.save(this.#passphrase, this.#cost))) return key;
    key.close();
    return this.openKey(set);
  }

  /** Those that are missing, damaged or of another secret key are made again. */
  protected override async openEvaluationKeys(set: string, key: ClientKey, progress: Progress | null): Promise<Uint8Array> {
    const name = `${stem(key.engine, set)}.evaluation.keys`;
    const found = await this.#store.read(name);
    if (found !== null && (await belongs(found, key))) return found;
    const fresh = await key.evaluationKeysObject(progress);
    await this.#store.write(name, fresh);
    return fresh;
  }
}

/** A store of the browser: one database, one object for each name. */
export class IndexedDbStore implements Store {
  readonly #database: Promise<IDBDatabase>;

  constructor(name = "cloakwork") {
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
}

function answered<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(new FheError(`keys: the browser's database refused (${request.error?.name ?? "no reason"})`));
  });
}

/** What `make` gives, asked for once while it works. */
function once<T>(held: Map<string, Promise<T>>, name: string, make: () => Promise<T>): Promise<T> {
  let found = held.get(name);
  if (found === undefined) {
    found = make();
    found.catch(() => held.delete(name));
    held.set(name, found);
  }
  return found;
}

function stem(engine: Engine, set: string): string {
  return `${set}-${hexadecimal(parameterSet(engine, set).digest).slice(0, 12)}`;
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
