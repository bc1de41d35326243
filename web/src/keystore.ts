// Secret keys at rest, in the format of fhe_core/wire/keystore.py: scrypt makes a key of the passphrase, AES-256-GCM encrypts. A file that Python
// wrote opens here, and the other way round.

import { scrypt } from "hash-wasm";

import type { Engine } from "./engine.js";
import { KeyMismatchError, ParameterError, SerializationError, UnsupportedError } from "./errors.js";
import type { ParameterSet } from "./parameters.js";
import { Encoding, type Header, KEY_DERIVATION_BYTES, pack, packHeader, SECRET_KEY, unpack } from "./wire.js";

/** Memory is 128 n r bytes, time grows with n r p. */
export interface ScryptCost {
  log2n: number;
  r: number;
  p: number;
}

export const DEFAULT_COST: Readonly<ScryptCost> = { log2n: 17, r: 8, p: 1 };

const SCRYPT = 1;
const MAX_MEMORY_BYTES = 2 ** 28;
const [SALT_BYTES, NONCE_BYTES] = [16, 12];

/** The bytes of a key file. `secret` is the caller's to overwrite. */
export async function sealSecret(
  params: ParameterSet,
  keyId: Uint8Array,
  secret: Uint8Array,
  passphrase: string,
  cost: ScryptCost = DEFAULT_COST,
): Promise<Uint8Array> {
  checkCost(cost);
  const header = headerOf(params, keyId);
  const derivation = new Uint8Array(KEY_DERIVATION_BYTES);
  const view = new DataView(derivation.buffer);
  derivation[0] = SCRYPT;
  derivation[1] = cost.log2n;
  view.setUint16(2, cost.r, true);
  view.setUint16(4, cost.p, true);
  crypto.getRandomValues(derivation.subarray(12));
  const sealed = await cipher("encrypt", header, derivation, passphrase, cost, secret);
  return pack(header, [derivation, sealed]);
}

/** Header and secret of a key file; KeyMismatchError for a wrong passphrase. */
export async function openSecret(engine: Engine, data: Uint8Array, passphrase: string): Promise<{ header: Header; secret: Uint8Array }> {
  const { header, sections } = await unpack(engine, data, [SECRET_KEY]);
  const [derivation, sealed] = sections as [Uint8Array, Uint8Array];
  const view = new DataView(derivation.buffer, derivation.byteOffset, derivation.length);
  if (derivation[0] !== SCRYPT || derivation.subarray(6, 12).some((byte) => byte !== 0))
    throw new SerializationError(
      `secret key: expected key derivation ${SCRYPT} (scrypt), got ${derivation[0]}; use the release that wrote it`,
    );
  const cost = { log2n: view.getUint8(1), r: view.getUint16(2, true), p: view.getUint16(4, true) };
  checkCost(cost);
  const secret = await cipher("decrypt", header, derivation, passphrase, cost, sealed);
  return { header, secret };
}

/** SerializationError beyond the limits, so that a file cannot make its reader work without end. */
function checkCost({ log2n, r, p }: ScryptCost): void {
  if (!(log2n >= 10 && log2n <= 20 && r >= 1 && p >= 1 && p <= 4 && 128 * r * 2 ** log2n <= MAX_MEMORY_BYTES))
    throw new SerializationError(
      `secret key: expected scrypt costs n = 2^10 .. 2^20, p <= 4 and at most ${MAX_MEMORY_BYTES / 2 ** 20} MiB, got n = 2^${log2n}, ` +
        `r = ${r}, p = ${p}; the file is damaged or hostile`,
    );
}

async function cipher(
  direction: "encrypt" | "decrypt",
  header: Header,
  derivation: Uint8Array,
  passphrase: string,
  { log2n, r, p }: ScryptCost,
  data: Uint8Array,
): Promise<Uint8Array> {
  if (passphrase === "") throw new ParameterError("passphrase: expected at least one character, got none; choose a passphrase");
  if (globalThis.crypto?.subtle === undefined)
    throw new UnsupportedError("keys: expected WebCrypto, which browsers give pages from https or this machine alone; open the page there");
  const salt = derivation.subarray(12, 12 + SALT_BYTES);
  const start = packHeader(header);
  const additionalData = new Uint8Array(start.length + derivation.length);
  additionalData.set(start);
  additionalData.set(derivation, start.length);
  const derived = await scrypt({
    password: new TextEncoder().encode(passphrase),
    salt,
    costFactor: 2 ** log2n,
    blockSize: r,
    parallelism: p,
    hashLength: 32,
    outputType: "binary",
  });
  try {
    const key = await crypto.subtle.importKey("raw", derived as BufferSource, "AES-GCM", false, [direction]);
    const algorithm = { name: "AES-GCM", iv: derivation.slice(12 + SALT_BYTES, 12 + SALT_BYTES + NONCE_BYTES), additionalData };
    return new Uint8Array(await crypto.subtle[direction](algorithm, key, data as BufferSource));
  } catch {
    throw new KeyMismatchError("secret key: the passphrase does not open this file; check the passphrase and the file");
  } finally {
    derived.fill(0);
  }
}

function headerOf(parameters: ParameterSet, keyId: Uint8Array): Header {
  return {
    kind: SECRET_KEY,
    parameters,
    seeded: false,
    keyId,
    shape: [],
    encoding: Encoding.Torus,
    weightNorm: 0,
    purpose: null,
    wordBits: 0,
  };
}
