// The parameter sets of the engine's table, their digest and the sizes that follow from them: fhe_core/parameters.py.

import type { Engine } from "./engine.js";
import { KeyMismatchError, ParameterError } from "./errors.js";
import { sha256 } from "./sha256.js";

const KINDS = ["gate", "exact", "approximate"] as const;
const SECRETS = ["binary", "ternary", "quinary", "gaussian"] as const;
// E[s] and E[s^2] of a coefficient: fhe_core/noise.py.
const SECRET_MEAN: Readonly<Record<string, number>> = { binary: 1 / 2, ternary: 0, quinary: 0 };
const SECRET_SQUARE: Readonly<Record<string, number>> = { binary: 1 / 2, ternary: 2 / 3, quinary: 2 };
const NAME_BYTES = 32;
const MINIMUM_SECURITY_BITS = 128;

// The integers of a row, in the order of fhe_core/src/wasm/parameters.cpp.
// prettier-ignore
const INTEGERS = [
  "kind", "messageBits", "polynomialSize", "glweDimension", "maskBaseLog", "maskLevelCount", "bodyBaseLog", "bodyLevelCount", "glweSecret",
  "lweSecret", "lweDimension", "keyswitchModulusLog2", "keyswitchBaseLog", "keyswitchLevelCount", "raised", "roundedProducts",
  "extensionFactor", "laneCount", "rowCount", "keysPerStep", "keyStepCount", "limbCount", "keyLimbCount", "securityBits", "structuredSecret",
  "ntru", "partyCount",
] as const;

type Integers = Record<(typeof INTEGERS)[number], number>;

/** A shipped parameter set; read-only. */
export class ParameterSet {
  readonly name: string;
  /** The engine's number of it. */
  readonly number: number;
  readonly kind: (typeof KINDS)[number];
  readonly messageBits: number;
  readonly polynomialSize: number;
  readonly glweDimension: number;
  readonly laneCount: number;
  readonly lweDimension: number;
  readonly modulus: bigint;
  readonly keyModulus: bigint;
  readonly securityBits: number;
  readonly structuredSecret: boolean;
  /** SHA-256 of `text`, as keys and ciphertexts carry it. */
  readonly digest: Uint8Array;
  /** The row as canonical text. */
  readonly text: string;
  readonly #glweSigma: number;
  readonly #row: Integers;

  constructor(number: number, name: string, rotation: string, moduli: [bigint, bigint], sigmas: number[], row: Integers) {
    this.number = number;
    this.name = name;
    this.kind = KINDS[row.kind] ?? "approximate";
    this.messageBits = row.messageBits;
    this.polynomialSize = row.polynomialSize;
    this.glweDimension = row.glweDimension;
    this.laneCount = row.laneCount;
    this.lweDimension = row.lweDimension;
    [this.modulus, this.keyModulus] = moduli;
    this.securityBits = row.securityBits;
    this.structuredSecret = row.structuredSecret === 1;
    this.#glweSigma = sigmas[0] as number;
    this.#row = row;
    this.text = canonicalText(this, rotation, sigmas, row);
    this.digest = sha256(new TextEncoder().encode(this.text));
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
  /** Of a torus word in memory, 4 or 8. */
  get memoryBytes(): 4 | 8 {
    return this.#row.limbCount === 1 ? 4 : 8;
  }
  get keyMemoryBytes(): 4 | 8 {
    return this.#row.keyLimbCount === 1 ? 4 : 8;
  }
  /** Byte planes of a word on the wire. */
  get planes(): number {
    return planesOf(this.modulus);
  }
  get keyPlanes(): number {
    return planesOf(this.keyModulus);
  }
  get keyswitchPlanes(): number {
    return Math.ceil(this.#row.keyswitchModulusLog2 / 8);
  }
  get bootstrapRows(): number {
    return this.#row.keyStepCount * this.#row.keysPerStep * this.#row.rowCount;
  }
  get bootstrapWords(): number {
    return this.bootstrapRows * this.laneCount * this.polynomialSize;
  }
  get keyswitchWords(): number {
    return this.largeDimension * this.#row.keyswitchLevelCount * this.laneCount;
  }
  get publicWords(): number {
    return this.largeDimension * this.laneCount;
  }
  /** E[S^2] of a coefficient of the ring key. */
  get #ringSquare(): number {
    const [secret, parties] = [SECRETS[this.#row.glweSecret] as string, this.#row.partyCount];
    const [square, mean] = [SECRET_SQUARE[secret] ?? NaN, SECRET_MEAN[secret] ?? NaN];
    return parties * (square - mean ** 2) + (parties * mean) ** 2;
  }
  /** Of an encryption of zero under the public key, which is added to every answer. */
  get rerandomisationVariance(): number {
    const [dimension, parties] = [this.largeDimension, this.#row.partyCount];
    const u = SECRET_SQUARE[SECRETS[this.#row.glweSecret] === "quinary" ? "quinary" : "ternary"] as number;
    return (parties * dimension * u + 1 + dimension * this.#ringSquare) * (this.#glweSigma / Number(this.modulus)) ** 2;
  }
  /** Of words that are rounded to a modulus of so many bits. */
  wordRoundingVariance(bits: number): number {
    return (this.largeDimension * this.#ringSquare + 1) / 12 / 4 ** bits;
  }
}

function planesOf(modulus: bigint): number {
  return Math.ceil(modulus.toString(2).length / 8);
}

function canonicalText(params: ParameterSet, rotation: string, sigmas: number[], row: Integers): string {
  const [glwe, key, lwe] = sigmas.map(real);
  const lines = [
    "cloakwork parameter set 1",
    `kind=${params.kind}`,
    `message_bits=${row.messageBits}`,
    `polynomial_size=${row.polynomialSize}`,
    `glwe_dimension=${row.glweDimension}`,
    `modulus=${params.modulus}`,
    `mask_gadget=${row.maskBaseLog},${row.maskLevelCount}`,
    `body_gadget=${row.bodyBaseLog},${row.bodyLevelCount}`,
    `cmux=${rotation}`,
    `glwe_secret=${SECRETS[row.glweSecret]}`,
    `glwe_sigma=${glwe}`,
    `lwe_secret=${SECRETS[row.lweSecret]}`,
    `lwe_dimension=${row.lweDimension}`,
    `keyswitch_modulus_log2=${row.keyswitchModulusLog2}`,
    `lwe_sigma=${lwe}`,
    `keyswitch_gadget=${row.keyswitchBaseLog},${row.keyswitchLevelCount}`,
  ];
  if (row.raised) lines.push(`key_modulus=${params.keyModulus}`, `key_sigma=${key}`);
  if (row.ntru) lines.push(`key_sigma=${key}`, "accumulator=ntru");
  if (row.roundedProducts) lines.push("rounded_products=True");
  if (row.extensionFactor !== 1) lines.push(`extension_factor=${row.extensionFactor}`);
  if (row.laneCount !== 1) lines.push(`lane_count=${row.laneCount}`);
  if (row.partyCount !== 1) lines.push(`party_count=${row.partyCount}`);
  return `${lines.join("\n")}\n`;
}

/** The shortest decimal of a double as Python writes it; sigmas lie in [0.5, 2000]. */
function real(value: number): string {
  return Number.isInteger(value) ? `${value}.0` : String(value);
}

const known = new WeakMap<Engine, Map<string, ParameterSet>>();

/** ParameterError for a name that the engine's table does not have. */
export function parameterSet(engine: Engine, name: string): ParameterSet {
  let sets = known.get(engine);
  if (sets === undefined) {
    sets = readTable(engine);
    known.set(engine, sets);
  }
  const found = sets.get(name);
  if (found === undefined) {
    const secure = [...sets.values()].filter((set) => set.securityBits >= MINIMUM_SECURITY_BITS).map((set) => set.name);
    throw new ParameterError(`parameter set: there is none called '${String(name).slice(0, 40)}'; expected one of ${secure.join(", ")}`);
  }
  return found;
}

/** KeyMismatchError for a set without security, which a server must not name, whatever the engine allows in tests. */
export function requireSecure({ name, securityBits }: ParameterSet): void {
  if (!(securityBits >= MINIMUM_SECURITY_BITS) || name.includes("/"))
    throw new KeyMismatchError(
      `client specification: parameter set '${name}' has fewer than ${MINIMUM_SECURITY_BITS} bits of security, for tests and comparisons; no server may name it`,
    );
}

function readTable(engine: Engine): Map<string, ParameterSet> {
  return engine.arena((arena) => {
    const sets = new Map<string, ParameterSet>();
    const size = engine.raw("set_row_bytes")();
    const address = arena.allocate(size);
    for (let number = 0; number < engine.raw("set_count")(); ++number) {
      engine.call("set_row", number, address);
      const row = engine.copy(address, size);
      const view = new DataView(row.buffer);
      const text = (start: number): string => new TextDecoder().decode(row.slice(start, row.indexOf(0, start)));
      const word = (i: number): number => 2 * NAME_BYTES + 8 * i;
      const integers = Object.fromEntries(INTEGERS.map((name, i) => [name, view.getUint32(word(5) + 4 * i, true)])) as Integers;
      const sigmas = [2, 3, 4].map((i) => view.getFloat64(word(i), true));
      const moduli: [bigint, bigint] = [view.getBigUint64(word(0), true), view.getBigUint64(word(1), true)];
      sets.set(text(0), new ParameterSet(number, text(0), text(NAME_BYTES), moduli, sigmas, integers));
    }
    return sets;
  });
}
