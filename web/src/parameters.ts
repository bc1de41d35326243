// The parameter sets of the engine's table, their digest and what follows from them: fhe_core/src/wasm/parameters.cpp.

import type { Engine } from "./engine.js";
import { KeyMismatchError, ParameterError } from "./errors.js";
import { sha256 } from "./sha256.js";

const KINDS = ["gate", "exact", "approximate"] as const;
// E[s] and E[s^2] of a coefficient of a binary, ternary, quinary key: fhe_core/noise.py.
const SECRET_MEAN = [1 / 2, 0, 0];
const SECRET_SQUARE = [1 / 2, 2 / 3, 2];
const [TERNARY, QUINARY] = [1, 2];
const NAME_BYTES = 32;
const MINIMUM_SECURITY_BITS = 128;

// The integers of a row, in the engine's order; `planes` are bytes of a word on the wire, `memoryBytes` those in memory.
// prettier-ignore
const INTEGERS = [
  "kindNumber", "messageBits", "polynomialSize", "glweDimension", "laneCount", "lweDimension", "securityBits", "structuredNumber", "glweSecret",
  "partyCount", "memoryBytes", "keyMemoryBytes", "planes", "keyPlanes", "keyswitchPlanes", "bootstrapRows", "bootstrapWords", "keyswitchWords",
] as const;

interface Row extends Record<(typeof INTEGERS)[number], number> {
  name: string;
  /** The engine's number of it. */
  number: number;
  modulus: bigint;
  glweSigma: number;
  /** The row as canonical text. */
  text: string;
  engine: Engine;
}

/** A shipped parameter set; read-only. */
export interface ParameterSet extends Readonly<Row> {}
export class ParameterSet {
  /** SHA-256 of `text`, as keys and ciphertexts carry it. */
  readonly digest: Uint8Array;

  constructor(row: Row) {
    Object.assign(this, row);
    this.digest = sha256(new TextEncoder().encode(row.text));
  }

  get kind(): (typeof KINDS)[number] {
    return KINDS[this.kindNumber] ?? "approximate";
  }
  get structuredSecret(): boolean {
    return this.structuredNumber === 1;
  }
  get largeDimension(): number {
    return this.polynomialSize * this.glweDimension;
  }
  /** Words of an LWE ciphertext: the mask, then the bodies. */
  get largeWords(): number {
    return this.largeDimension + this.laneCount;
  }
  get componentCount(): number {
    return this.glweDimension + this.laneCount;
  }
  get secretBytes(): number {
    return this.laneCount * (this.lweDimension + this.largeDimension);
  }
  get publicWords(): number {
    return this.largeDimension * this.laneCount;
  }
  /** E[S^2] of a coefficient of the ring key. */
  get #ringSquare(): number {
    const [square, mean] = [SECRET_SQUARE[this.glweSecret] ?? NaN, SECRET_MEAN[this.glweSecret] ?? NaN];
    return this.partyCount * (square - mean ** 2) + (this.partyCount * mean) ** 2;
  }
  /** Of an encryption of zero under the public key, which is added to every answer. */
  get rerandomisationVariance(): number {
    const u = SECRET_SQUARE[this.glweSecret === QUINARY ? QUINARY : TERNARY] as number;
    const zero = this.partyCount * this.largeDimension * u + 1 + this.largeDimension * this.#ringSquare;
    return zero * (this.glweSigma / Number(this.modulus)) ** 2;
  }
  /** Of words that are rounded to a modulus of so many bits. */
  wordRoundingVariance(bits: number): number {
    return (this.largeDimension * this.#ringSquare + 1) / 12 / 4 ** bits;
  }
}

const known = new WeakMap<Engine, ParameterSet[]>();

/** All of them, by the engine's numbers. */
export function parameterSets(engine: Engine): readonly ParameterSet[] {
  const sets = known.get(engine) ?? readTable(engine);
  known.set(engine, sets);
  return sets;
}

/** ParameterError for a name that the engine's table does not have. */
export function parameterSet(engine: Engine, name: string): ParameterSet {
  const sets = parameterSets(engine);
  const named = sets.find((set) => set.name === name);
  if (named !== undefined) return named;
  const secure = sets.filter((set) => set.securityBits >= MINIMUM_SECURITY_BITS).map((set) => set.name);
  throw new ParameterError(`parameter set: there is none called '${String(name).slice(0, 40)}'; expected one of ${secure.join(", ")}`);
}

/** KeyMismatchError for a set without security, which a server must not name, whatever the engine allows in tests. */
export function requireSecure({ name, securityBits }: ParameterSet): void {
  if (!(securityBits >= MINIMUM_SECURITY_BITS) || name.includes("/"))
    throw new KeyMismatchError(
      `client specification: parameter set '${name}' has fewer than ${MINIMUM_SECURITY_BITS} bits of security, for tests and comparisons; no server may name it`,
    );
}

function readTable(engine: Engine): ParameterSet[] {
  return engine.arena((arena) => {
    const size = engine.raw("set_row_bytes")();
    const [address, out] = [arena.allocate(size), arena.allocate(4)];
    return Array.from({ length: engine.raw("set_count")() }, (_, number) => {
      engine.call("set_row", number, address, out);
      const view = new DataView(engine.copy(address, size).buffer);
      const integers = INTEGERS.map((name, i) => [name, view.getUint32(NAME_BYTES + 16 + 4 * i, true)]);
      const set = new ParameterSet({
        ...(Object.fromEntries(integers) as Record<(typeof INTEGERS)[number], number>),
        name: engine.text(address),
        number,
        modulus: view.getBigUint64(NAME_BYTES, true),
        glweSigma: view.getFloat64(NAME_BYTES + 8, true),
        text: engine.text(engine.number(out)),
        engine,
      });
      engine.call("set_digest", number, arena.put(set.digest));
      return set;
    });
  });
}
