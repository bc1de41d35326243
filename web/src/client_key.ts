// The secret side: keys, encryption and decryption. All arithmetic on secrets is the engine's.

import { checkMasks } from "./answers.js";
import { roundHalfEven } from "./arrays.js";
import { Arena, defaultEngine, Engine, type Progress } from "./engine.js";
import { CancelledError, KeyMismatchError, ParameterError, ShapeError } from "./errors.js";
import { DEFAULT_COST, openSecret, type ScryptCost, sealSecret } from "./keystore.js";
import { parameterSet, type ParameterSet } from "./parameters.js";
import { digestOf, incrementalSha256, sha256 } from "./sha256.js";
import {
  BLOCK_WORDS,
  CIPHERTEXTS,
  Encoding,
  equalBytes,
  EVALUATION_KEYS,
  type Header,
  KEY_ID_BYTES,
  objectBytes,
  pack,
  packHeader,
  PACKED_CIPHERTEXTS,
  SEED_BYTES,
  SWITCHED_CIPHERTEXTS,
  unpack,
} from "./wire.js";

/** `lwe`: whole ciphertexts; `seeded`: a few bytes each, which the server expands; `packed`: seeded, N values to a ciphertext. */
export type Form = "lwe" | "seeded" | "packed";

export interface EncryptOptions {
  form?: Form;
  /** Of the array of ciphertexts; without it a vector of all values. */
  shape?: number[];
  /** What the ciphertexts are for, 32 bytes. */
  purpose?: Uint8Array | null;
}

/** What an object of ciphertexts holds: message plus noise of each, torus words in [0, Q). */
export interface Phases {
  header: Header;
  words: BigUint64Array;
}

const BUSY_MS = 16; // of making keys until others have their turn
const ROWS_AT_ONCE = 16; // of a bootstrap key, in one transform
const TORUS_LIMIT = 0.25;

/**
 * The secret key of one parameter set. It stays with the owner of the data; `evaluationKeys()` is what a server gets. `close()` overwrites it.
 */
export class ClientKey {
  readonly parameters: ParameterSet;
  /** A random public identifier that ciphertexts and evaluation keys of this key carry. */
  readonly keyId: Uint8Array;
  readonly engine: Engine;
  #address: number;

  private constructor(engine: Engine, parameters: ParameterSet, address: number, keyId: Uint8Array) {
    this.engine = engine;
    this.parameters = parameters;
    this.keyId = keyId;
    this.#address = address;
  }

  /** A fresh key from the platform's randomness. */
  static async generate(set: string, engine?: Engine): Promise<ClientKey> {
    const found = engine ?? (await defaultEngine());
    const parameters = parameterSet(found, set);
    const address = create(found, (_, out) => found.call("key_generate", parameters.number, out));
    return new ClientKey(found, parameters, address, crypto.getRandomValues(new Uint8Array(KEY_ID_BYTES)));
  }

  /** Tests only, and refused elsewhere: key, noise and seeds all follow from 32 bytes. */
  static fromEntropy(set: string, entropy: Uint8Array, engine: Engine): ClientKey {
    if (entropy.length !== 32) throw new ParameterError(`entropy: expected 32 bytes, got ${entropy.length}`);
    const parameters = parameterSet(engine, set);
    const address = create(engine, (arena, out) => engine.call("key_from_entropy", parameters.number, arena.put(entropy), out));
    const label = new TextEncoder().encode("key id");
    const text = new Uint8Array(label.length + entropy.length);
    text.set(label);
    text.set(entropy, label.length);
    return new ClientKey(engine, parameters, address, sha256(text).slice(0, KEY_ID_BYTES));
  }

  /** The key of a file that `save`, or Python's `ClientKey.save`, made. KeyMismatchError for a wrong passphrase. */
  static async load(file: Uint8Array, passphrase: string, engine?: Engine): Promise<ClientKey> {
    const found = engine ?? (await defaultEngine());
    const { header, secret } = await openSecret(found, file, passphrase);
    try {
      const { parameters } = header;
      const address = create(found, (arena, out) => found.call("key_restore", parameters.number, arena.put(secret), secret.length, out));
      return new ClientKey(found, parameters, address, header.keyId ?? new Uint8Array(KEY_ID_BYTES));
    } finally {
      secret.fill(0);
    }
  }

  /** The bytes of a key file, encrypted with the passphrase (scrypt and AES-256-GCM), which Python's `ClientKey.load` reads too. */
  async save(passphrase: string, cost: ScryptCost = DEFAULT_COST): Promise<Uint8Array> {
    const count = this.parameters.secretBytes;
    const secret = this.engine.arena((arena) => {
      const address = arena.allocate(count);
      this.engine.raw("key_export")(this.#open(), address);
      return this.engine.copy(address, count);
    });
    try {
      return await sealSecret(this.parameters, this.keyId, secret, passphrase, cost);
    } finally {
      secret.fill(0);
    }
  }

  /** Overwrites the key in memory; it cannot be used any more. */
  close(): void {
    if (this.#address !== 0) this.engine.raw("key_release")(this.#address);
    this.#address = 0;
  }

  toJSON(): never {
    throw new ParameterError("a secret key does not go into JSON; use save(passphrase)");
  }

  // --- evaluation keys ---

  /** Size of the object that `evaluationKeys` gives. */
  get evaluationKeysBytes(): number {
    return objectBytes(this.#header(EVALUATION_KEYS, true));
  }

  /**
   * What a server needs, as consecutive parts of one object of the wire format, each made when it is asked for: some hundred kilobytes, a few
   * milliseconds. New seeds and new noise every time. Whoever stops before the end ends the iterator (`break`, `return`), which overwrites what
   * it holds; the key stays open until then.
   */
  async *evaluationKeys(progress: Progress | null = null): AsyncGenerator<Uint8Array, void, void> {
    const checksum = await incrementalSha256();
    for await (const part of this.#evaluationKeyParts(progress)) {
      checksum.update(part);
      yield part;
    }
    yield checksum.digest("binary");
  }

  /** The same in one piece, hashed at once where the platform does that. */
  async evaluationKeysObject(progress: Progress | null = null): Promise<Uint8Array> {
    const out = new Uint8Array(this.evaluationKeysBytes);
    let offset = 0;
    for await (const part of this.#evaluationKeyParts(progress)) {
      out.set(part, offset);
      offset += part.length;
    }
    out.set(await digestOf(out.subarray(0, offset)), offset);
    return out;
  }

  async *#evaluationKeyParts(progress: Progress | null): AsyncGenerator<Uint8Array, void, void> {
    const { engine, parameters: params } = this;
    const { bootstrapRows, largeDimension, publicWords } = params;
    const arena = new Arena(engine);
    let [maker, made] = [0, 0];
    const rowsOf =
      (name: string) =>
      (count: number, address: number): void => {
        this.#open(); // the maker uses it
        engine.call(name, maker, count, address);
        made += count;
        if (progress?.(made, bootstrapRows + largeDimension) === false)
          throw new CancelledError("evaluation keys: generation was cancelled by the progress callback");
      };
    try {
      const [seed, publicSeed, out] = [arena.allocate(SEED_BYTES), arena.allocate(SEED_BYTES), arena.allocate(4)];
      engine.call("maker_open", this.#open(), seed, out);
      maker = engine.number(out);
      yield packHeader(this.#header(EVALUATION_KEYS, true));
      yield engine.copy(seed, SEED_BYTES);
      const [bootstrap, keyswitch] = [params.bootstrapWords / bootstrapRows, params.keyswitchWords / largeDimension];
      yield* this.#blocks(bootstrapRows, bootstrap, params.keyMemoryBytes, params.keyPlanes, rowsOf("maker_bootstrap"));
      yield* this.#blocks(largeDimension, keyswitch, 4, params.keyswitchPlanes, rowsOf("maker_keyswitch"));
      const bytes = publicWords * params.memoryBytes;
      const bodies = arena.allocate(bytes);
      engine.call("public_key", this.#open(), publicSeed, bodies);
      yield engine.copy(publicSeed, SEED_BYTES);
      yield* this.#blocks(1, publicWords, params.memoryBytes, params.planes, (_, address) =>
        engine.bytes(address, bytes).set(engine.bytes(bodies, bytes)),
      );
    } finally {
      if (maker !== 0) engine.raw("maker_close")(maker);
      arena.free();
    }
  }

  /** A section of `rows` times `rowWords` words in blocks of the wire format: as many rows are made as a block needs. */
  async *#blocks(
    rows: number,
    rowWords: number,
    memoryBytes: number,
    planes: number,
    make: (count: number, address: number) => void,
  ): AsyncGenerator<Uint8Array, void, void> {
    const { engine } = this;
    const arena = new Arena(engine);
    try {
      const words = arena.allocate(Math.min(rows * rowWords, BLOCK_WORDS + ROWS_AT_ONCE * rowWords) * memoryBytes);
      const out = arena.allocate(BLOCK_WORDS * planes);
      let since = performance.now();
      for (let [made, held] = [0, 0]; made < rows || held > 0;) {
        if (held < BLOCK_WORDS && made < rows) {
          const missing = Math.ceil((BLOCK_WORDS - held) / rowWords);
          const count = Math.min(rows - made, ROWS_AT_ONCE * Math.ceil(missing / ROWS_AT_ONCE));
          make(count, words + held * memoryBytes);
          made += count;
          held += count * rowWords;
        }
        const block = Math.min(held, BLOCK_WORDS);
        engine.raw("pack_planes")(words, block, memoryBytes, planes, out);
        yield engine.copy(out, block * planes);
        engine.bytes(words, held * memoryBytes).copyWithin(0, block * memoryBytes);
        held -= block;
        if (performance.now() - since < BUSY_MS) continue;
        await turn();
        since = performance.now();
      }
    } finally {
      arena.free();
    }
  }

  // --- encryption ---

  /** Fractions of the torus in [-1/4, 1/4]; ParameterError names the position of one outside, never the value. */
  encryptTorus(values: ArrayLike<number>, options: EncryptOptions = {}): Uint8Array {
    const modulus = Number(this.parameters.modulus);
    const words = new BigUint64Array(values.length);
    for (let i = 0; i < values.length; ++i) {
      const value = values[i] as number;
      if (!(Math.abs(value) <= TORUS_LIMIT))
        throw new ParameterError(
          `torus values: expected numbers in [-${TORUS_LIMIT}, ${TORUS_LIMIT}]; the one at position ${i} is outside`,
        );
      const signed = BigInt(roundHalfEven(value * modulus));
      words[i] = signed < 0n ? signed + this.parameters.modulus : signed;
    }
    return this.#encryptWords(words, Encoding.Torus, options);
  }

  /** Integers in [0, 2^p) of an exact set. */
  encryptMessages(values: ArrayLike<number>, options: EncryptOptions = {}): Uint8Array {
    const { messageBits, modulus, name } = this.parameters;
    if (this.parameters.kind !== "exact") throw new ParameterError(`parameter set '${name}' has no integer messages; use an exact set`);
    const words = new BigUint64Array(values.length);
    for (let i = 0; i < values.length; ++i) {
      const value = values[i] as number;
      if (!(Number.isInteger(value) && value >= 0 && value < 2 ** messageBits))
        throw new ParameterError(`messages: expected integers in [0, ${2 ** messageBits}); the one at position ${i} is outside`);
      words[i] = ((BigInt(value) * modulus + (1n << BigInt(messageBits))) >> BigInt(messageBits + 1)) % modulus;
    }
    return this.#encryptWords(words, Encoding.Message, options);
  }

  #encryptWords(words: BigUint64Array, encoding: Encoding, { form = "packed", shape, purpose = null }: EncryptOptions): Uint8Array {
    const { engine, parameters: params } = this;
    const lanes = params.laneCount;
    if (words.length === 0 || words.length % lanes !== 0)
      throw new ShapeError(`values: expected at least one value, a multiple of ${lanes} of them, got ${words.length}`);
    const count = words.length / lanes;
    const extents = shape ?? [count];
    if (extents.reduce((product, extent) => product * extent, 1) !== count)
      throw new ShapeError(`shape: expected dimensions of ${count} ciphertexts, got [${extents.join(", ")}]`);
    const packed = form === "packed";
    const header = this.#header(packed ? PACKED_CIPHERTEXTS : CIPHERTEXTS, form !== "lwe", extents, encoding, purpose);
    const batch = packed ? Math.ceil(count / params.polynomialSize) : count;
    const bodyWords = batch * lanes * (packed ? params.polynomialSize : 1);
    const input = packed ? packedWords(params, words) : words;
    return engine.arena((arena) => {
      const [seed, bodies] = [arena.allocate(SEED_BYTES), arena.allocate(bodyWords * params.memoryBytes)];
      const messages = arena.put(input);
      input.fill(0n);
      words.fill(0n);
      engine.call(packed ? "encrypt_glwe" : "encrypt_lwe", this.#open(), messages, batch, seed, bodies);
      if (form !== "lwe") return pack(header, [engine.copy(seed, SEED_BYTES), this.#planes(arena, bodies, bodyWords)]);
      const lwe = arena.allocate(count * params.largeWords * params.memoryBytes);
      engine.call("expand_seeded_lwe", params.number, seed, bodies, count, lwe);
      return pack(header, [this.#planes(arena, lwe, count * params.largeWords)]);
    });
  }

  #planes(arena: Arena, address: number, count: number): Uint8Array {
    const { planes, memoryBytes } = this.parameters;
    const out = arena.allocate(count * planes);
    this.engine.raw("pack_planes")(address, count, memoryBytes, planes, out);
    return this.engine.copy(out, count * planes);
  }

  // --- decryption ---

  /** Message plus noise of every ciphertext of an object; KeyMismatchError for another key's. */
  async phases(object: Uint8Array): Promise<Phases> {
    return this.#phasesOf(await unpack(this.engine, object, [CIPHERTEXTS, PACKED_CIPHERTEXTS, SWITCHED_CIPHERTEXTS]), false);
  }

  /** The same of what a model may answer: LWE ciphertexts of fractions of the torus. SerializationError: masks that no evaluation gives. */
  async answerPhases(object: Uint8Array): Promise<Phases> {
    const found = await unpack(this.engine, object, [CIPHERTEXTS, SWITCHED_CIPHERTEXTS]);
    if (found.header.seeded || found.header.encoding !== Encoding.Torus)
      throw new KeyMismatchError(
        "answer: expected ciphertexts of fractions of the torus that follow from no seed, as evaluations give them",
      );
    return this.#phasesOf(found, true);
  }

  #phasesOf({ header, sections }: { header: Header; sections: Uint8Array[] }, isAnswer: boolean): Phases {
    const params = header.parameters;
    if (params.name !== this.parameters.name)
      throw new KeyMismatchError(`ciphertexts: expected parameter set '${this.parameters.name}', got '${params.name}'`);
    if (header.keyId !== null && this.keyId.some((byte) => byte !== 0) && !equalBytes(header.keyId, this.keyId))
      throw new KeyMismatchError("ciphertexts: they belong to another key; decrypt them with the key that encrypted the input");
    return { header, words: this.engine.arena((arena) => this.#phaseWords(arena, header, sections, isAnswer)) };
  }

  #phaseWords(arena: Arena, header: Header, sections: Uint8Array[], isAnswer: boolean): BigUint64Array {
    const { engine, parameters: params } = this;
    const count = header.shape.reduce((product, extent) => product * extent, 1);
    const packed = header.kind === PACKED_CIPHERTEXTS;
    const batch = packed ? Math.ceil(count / params.polynomialSize) : count;
    const width = packed ? params.componentCount * params.polynomialSize : params.largeWords;
    const values = params.laneCount * (packed ? params.polynomialSize : 1); // phases of a ciphertext
    const words = arena.allocate(batch * width * params.memoryBytes);
    const unpackPlanes = (data: Uint8Array, words_: number, out: number): void =>
      engine.call("unpack_planes", arena.put(data), words_, params.memoryBytes, params.planes, params.modulus, out);
    if (header.kind === SWITCHED_CIPHERTEXTS) {
      engine.call("expand_switched", params.number, arena.put(sections[0] as Uint8Array), batch * width, header.wordBits, words);
    } else if (header.seeded) {
      const bodies = arena.allocate(batch * values * params.memoryBytes);
      unpackPlanes(sections[1] as Uint8Array, batch * values, bodies);
      const expand = packed ? "expand_seeded_glwe" : "expand_seeded_lwe";
      engine.call(expand, params.number, arena.put(sections[0] as Uint8Array), bodies, batch, words);
    } else {
      unpackPlanes(sections[0] as Uint8Array, batch * width, words);
    }
    if (isAnswer) checkMasks(params, engine.bytes(words, batch * width * params.memoryBytes), header.wordBits);
    const phases = arena.allocate(8 * batch * values);
    engine.call(packed ? "phase_glwe" : "phase_lwe", this.#open(), words, batch, phases);
    const found = new BigUint64Array(engine.copy(phases, 8 * batch * values).buffer);
    return packed ? unpackedWords(params, found, count) : found;
  }

  /** Values of the ciphertexts: fractions of the torus, messages modulo 2^(p+1), or 0 and 1. */
  async decrypt(object: Uint8Array): Promise<Float64Array> {
    return this.decode(await this.phases(object));
  }

  decode({ header, words }: Phases): Float64Array {
    const { modulus, messageBits } = this.parameters;
    const half = (modulus + 1n) / 2n;
    if (header.encoding === Encoding.Boolean) return Float64Array.from(words, (word) => (word < half ? 1 : 0));
    if (header.encoding === Encoding.Torus)
      return Float64Array.from(words, (word) => Number(word >= half ? word - modulus : word) / Number(modulus));
    const bits = BigInt(messageBits + (header.encoding === Encoding.Message ? 1 : 0));
    return Float64Array.from(words, (word) => Number((((word << bits) + modulus / 2n) / modulus) & ((1n << bits) - 1n)));
  }

  #open(): number {
    if (this.#address === 0) throw new ParameterError("key: expected an open one; it was closed");
    return this.#address;
  }

  #header(kind: number, seeded: boolean, shape: number[] = [], encoding = Encoding.Torus, purpose: Uint8Array | null = null): Header {
    const weightNorm = kind >= CIPHERTEXTS ? 1 : 0;
    return { kind, parameters: this.parameters, seeded, keyId: this.keyId, shape, encoding, weightNorm, purpose, wordBits: 0 };
  }
}

/** Words [count][r] as plaintext polynomials [G][r][N], the last ones filled with zeros. */
function packedWords({ polynomialSize: size, laneCount: lanes }: ParameterSet, words: BigUint64Array): BigUint64Array {
  const count = words.length / lanes;
  const out = new BigUint64Array(Math.ceil(count / size) * lanes * size);
  for (let i = 0; i < count; ++i)
    for (let lane = 0; lane < lanes; ++lane)
      out[(Math.floor(i / size) * lanes + lane) * size + (i % size)] = words[i * lanes + lane] as bigint;
  return out;
}

/** The inverse, [G][r][N] to [count][r]. */
function unpackedWords({ polynomialSize: size, laneCount: lanes }: ParameterSet, words: BigUint64Array, count: number): BigUint64Array {
  const out = new BigUint64Array(count * lanes);
  for (let i = 0; i < count; ++i)
    for (let lane = 0; lane < lanes; ++lane)
      out[i * lanes + lane] = words[(Math.floor(i / size) * lanes + lane) * size + (i % size)] as bigint;
  return out;
}

/** The key that `make` writes the address of. */
function create(engine: Engine, make: (arena: Arena, out: number) => void): number {
  return engine.arena((arena) => {
    const out = arena.allocate(4);
    make(arena, out);
    return engine.number(out);
  });
}

/** Lets run what waits, requests under way above all. Timers would hold it back for some milliseconds each time. */
function turn(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
