// The wire format: headers, sections and checks in the order of docs/reference/wire_format.md.

import type { Engine } from "./engine.js";
import { KeyMismatchError, ParameterError, SerializationError } from "./errors.js";
import { parameterSet, type ParameterSet } from "./parameters.js";
import { digestOf, sha256 } from "./sha256.js";

export const SECRET_KEY = 1;
export const EVALUATION_KEYS = 2;
export const PUBLIC_KEY = 3;
export const CIPHERTEXTS = 4;
export const PACKED_CIPHERTEXTS = 5;
export const SWITCHED_CIPHERTEXTS = 6;
const LABELS = ["", "secret key", "evaluation keys", "public key", "ciphertexts", "packed ciphertexts", "switched ciphertexts"];

/** How a phase stands for a value; the number is the byte of the wire format. */
export enum Encoding {
  Torus = 0,
  Message = 1,
  FullDomain = 2,
  Boolean = 3,
}

export const SEED_BYTES = 32;
export const CHECKSUM_BYTES = 32;
export const KEY_ID_BYTES = 16;
export const KEY_DERIVATION_BYTES = 40;
export const TAG_BYTES = 16;
/** Of evaluation keys: so many words' byte planes follow those of the words before. */
export const BLOCK_WORDS = 1 << 16;
const HEADER_BYTES = 112;
const PURPOSE_BYTES = 32;
const BOUND_BYTES = 6;
const MAX_RANK = 8;
const MAX_WEIGHT_NORM = 2 ** 32;
const MAX_BYTES = 2 ** 30;
const FLAG_SEEDED = 1;
const FLAG_PURPOSE = 2;

export interface Header {
  kind: number;
  parameters: ParameterSet;
  seeded: boolean;
  /** Null: not known. */
  keyId: Uint8Array | null;
  shape: number[];
  encoding: Encoding;
  weightNorm: number;
  /** What the ciphertexts are for; null: they do not say. */
  purpose: Uint8Array | null;
  /** Of switched ciphertexts. */
  wordBits: number;
}

/** Bytes of every section, in order. */
export function sectionBytes(kind: number, params: ParameterSet, seeded: boolean, shape: number[], wordBits = 0): number[] {
  const count = shape.reduce((product, extent) => product * extent, 1);
  const polynomials = Math.ceil(count / params.polynomialSize);
  const publicBytes = params.publicWords * params.planes;
  switch (kind) {
    case SECRET_KEY:
      return [KEY_DERIVATION_BYTES, params.secretBytes + TAG_BYTES];
    case EVALUATION_KEYS:
      return [
        SEED_BYTES,
        params.bootstrapWords * params.keyPlanes,
        params.keyswitchWords * params.keyswitchPlanes,
        SEED_BYTES,
        publicBytes,
      ];
    case PUBLIC_KEY:
      return [SEED_BYTES, publicBytes];
    case CIPHERTEXTS:
      return seeded ? [SEED_BYTES, count * params.laneCount * params.planes] : [count * params.largeWords * params.planes];
    case SWITCHED_CIPHERTEXTS:
      return [Math.ceil((count * params.largeWords * wordBits) / 8)];
    default:
      return seeded
        ? [SEED_BYTES, polynomials * params.laneCount * params.polynomialSize * params.planes]
        : [polynomials * params.componentCount * params.polynomialSize * params.planes];
  }
}

/** Bytes of so many ciphertexts in the largest form that an answer may have. */
export function mostResultBytes(params: ParameterSet, count: number): number {
  const rest = HEADER_BYTES + 8 * MAX_RANK + PURPOSE_BYTES + CHECKSUM_BYTES;
  const forms = [sectionBytes(CIPHERTEXTS, params, false, [count]), sectionBytes(PACKED_CIPHERTEXTS, params, false, [count])];
  return rest + Math.max(...forms.flat());
}

export function objectBytes(header: Header): number {
  const sections = sectionBytes(header.kind, header.parameters, header.seeded, header.shape, header.wordBits);
  return headerBytes(header) + sections.reduce((sum, bytes) => sum + bytes, 0) + CHECKSUM_BYTES;
}

function headerBytes(header: Header): number {
  return HEADER_BYTES + 8 * header.shape.length + (header.purpose === null ? 0 : PURPOSE_BYTES);
}

/** Header, dimensions and purpose. */
export function packHeader(header: Header): Uint8Array {
  const out = new Uint8Array(headerBytes(header));
  const view = new DataView(out.buffer);
  out.set(new TextEncoder().encode("CLKW"));
  view.setUint16(4, versionsOf(header.kind).at(-1) as number, true);
  out[6] = header.kind;
  out[7] = (header.seeded ? FLAG_SEEDED : 0) + (header.purpose === null ? 0 : FLAG_PURPOSE);
  view.setBigUint64(8, BigInt(objectBytes(header)), true);
  out.set(new TextEncoder().encode(header.parameters.name), 16);
  out.set(header.parameters.digest, 48);
  if (header.keyId !== null) out.set(header.keyId, 80);
  view.setFloat64(96, header.weightNorm, true);
  out[104] = header.encoding;
  out[105] = header.shape.length;
  if (header.kind === SWITCHED_CIPHERTEXTS) out[106] = header.wordBits;
  header.shape.forEach((extent, i) => view.setBigUint64(HEADER_BYTES + 8 * i, BigInt(extent), true));
  if (header.purpose !== null) out.set(header.purpose, HEADER_BYTES + 8 * header.shape.length);
  return out;
}

/** A whole object of few sections; large ones are made in parts by `ClientKey.evaluationKeys`. */
export function pack(header: Header, sections: Uint8Array[]): Uint8Array {
  const parts = [packHeader(header), ...sections];
  const out = new Uint8Array(objectBytes(header));
  let offset = 0;
  for (const part of parts) {
    out.set(part, offset);
    offset += part.length;
  }
  out.set(sha256(out.subarray(0, offset)), offset);
  return out;
}

/** Header and sections of an object of one of these kinds, views of `data`; every field, the size and the checksum checked. */
export async function unpack(engine: Engine, data: Uint8Array, kinds: number[]): Promise<{ header: Header; sections: Uint8Array[] }> {
  const header = readHeader(engine, data, kinds);
  const end = data.length - CHECKSUM_BYTES;
  if (!equalBytes(await digestOf(data.subarray(0, end)), data.subarray(end)))
    throw new SerializationError(
      `${label(header.kind)}: the checksum does not match; the bytes were altered or damaged, transfer the object again`,
    );
  const sections: Uint8Array[] = [];
  let offset = headerBytes(header);
  for (const bytes of sectionBytes(header.kind, header.parameters, header.seeded, header.shape, header.wordBits)) {
    sections.push(data.subarray(offset, offset + bytes));
    offset += bytes;
  }
  return { header, sections };
}

/** Every field and the size checked, sections and checksum not looked at. */
export function readHeader(engine: Engine, data: Uint8Array, kinds: number[]): Header {
  if (data.length < HEADER_BYTES + CHECKSUM_BYTES)
    throw new SerializationError(
      `object: expected at least ${HEADER_BYTES + CHECKSUM_BYTES} bytes, got ${data.length}; it is truncated, transfer it again`,
    );
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const [kind, flags] = [view.getUint8(6), view.getUint8(7)];
  checkIdentity(data, kind, view.getUint16(4, true), flags, kinds);
  const total = view.getBigUint64(8, true);
  if (total !== BigInt(data.length))
    throw damaged(kind, `expected ${total} bytes, got ${data.length}; the object is ${data.length < total ? "truncated" : "extended"}`);
  if (data.length > MAX_BYTES) throw damaged(kind, `expected at most ${MAX_BYTES} bytes, got ${data.length}`);
  const parameters = knownSet(engine, data);
  const header: Header = {
    kind,
    parameters,
    seeded: (flags & FLAG_SEEDED) !== 0,
    keyId: data.subarray(80, 96).some((byte) => byte !== 0) ? data.slice(80, 96) : null,
    shape: [],
    encoding: view.getUint8(104),
    weightNorm: view.getFloat64(96, true),
    purpose: null,
    wordBits: 0,
  };
  checkForm(header, view, flags);
  const rank = view.getUint8(105);
  const start = HEADER_BYTES + 8 * rank;
  if (data.length < start + ((flags & FLAG_PURPOSE) !== 0 ? PURPOSE_BYTES : 0) + CHECKSUM_BYTES)
    throw damaged(kind, "it is shorter than its header says");
  for (let i = 0; i < rank; ++i) {
    const extent = Number(view.getBigUint64(HEADER_BYTES + 8 * i, true));
    if (!(extent >= 1 && extent <= MAX_BYTES)) throw damaged(kind, "expected dimensions of at least 1 that fit memory");
    header.shape.push(extent);
  }
  if ((flags & FLAG_PURPOSE) !== 0) header.purpose = data.slice(start, start + PURPOSE_BYTES);
  const expected = objectBytes(header);
  if (expected !== data.length)
    throw damaged(kind, `the counts of the header ask for ${expected} bytes, the object has ${data.length}; it is damaged or not valid`);
  return header;
}

function checkIdentity(data: Uint8Array, kind: number, version: number, flags: number, kinds: number[]): void {
  if (new TextDecoder("latin1").decode(data.subarray(0, 4)) !== "CLKW")
    throw new SerializationError("object: expected the magic bytes 'CLKW' at its start; this is another kind of file");
  if (kind < SECRET_KEY || kind > SWITCHED_CIPHERTEXTS)
    throw new SerializationError(`object: expected a kind from 1 to 6, got ${kind}; the object is damaged or from a newer release`);
  const expected = versionsOf(kind);
  if (!expected.includes(version))
    throw damaged(
      kind,
      `expected wire format version ${expected.join(" or ")}, got ${version}; use the release of cloakwork that wrote it`,
    );
  if ((flags & ~(FLAG_SEEDED | FLAG_PURPOSE)) !== 0) throw damaged(kind, `expected flags from 0 to 3, got ${flags}`);
  if (!kinds.includes(kind)) {
    const advice =
      kind === SECRET_KEY ? "a secret key must stay with its owner: delete this copy" : "pass the object to the function of its kind";
    throw new SerializationError(`object: expected ${kinds.map(label).join(" or ")}, got ${label(kind)}; ${advice}`);
  }
}

function checkForm(header: Header, view: DataView, flags: number): void {
  const { kind, seeded, weightNorm, encoding, parameters } = header;
  const rank = view.getUint8(105);
  const bound = Array.from({ length: BOUND_BYTES }, (_, i) => view.getUint8(106 + i));
  const isCiphertext = kind >= CIPHERTEXTS;
  if (kind === SWITCHED_CIPHERTEXTS) {
    header.wordBits = bound[0] ?? 0;
    if (seeded || header.wordBits < 1 || header.wordBits > 32 || bound.some((byte, i) => i > 0 && byte !== 0))
      throw damaged(kind, "expected the full form, words of 1 to 32 bits and zeros after that");
    bound.fill(0);
  }
  const hasBound = bound.some((byte) => byte !== 0);
  const foreign = rank !== 0 || weightNorm !== 0 || encoding !== 0 || hasBound || (flags & FLAG_PURPOSE) !== 0;
  if (!isCiphertext && (foreign || seeded !== (kind !== SECRET_KEY)))
    throw damaged(kind, "the header has fields that this kind does not have");
  if (rank > MAX_RANK) throw damaged(kind, `expected at most ${MAX_RANK} dimensions`);
  if (!(weightNorm >= 0 && weightNorm <= MAX_WEIGHT_NORM && !Object.is(weightNorm, -0)))
    throw damaged(kind, "expected a weight norm in [0, 2^32]");
  if (encoding > Encoding.Boolean) throw damaged(kind, `expected an encoding from 0 to 3, got ${encoding}`);
  if ((encoding === Encoding.Message || encoding === Encoding.FullDomain) && parameters.messageBits === 0)
    throw damaged(kind, `parameter set '${parameters.name}' has no integer messages, but the object says that it holds some`);
  if (hasBound && encoding !== Encoding.Message) throw damaged(kind, "expected a message bound of messages alone");
}

function knownSet(engine: Engine, data: Uint8Array): ParameterSet {
  const field = data.subarray(16, 48);
  const end = field.indexOf(0) < 0 ? field.length : field.indexOf(0);
  const name = new TextDecoder("latin1").decode(field.subarray(0, end));
  if (!/^[a-z0-9_]+$/.test(name) || field.subarray(end).some((byte) => byte !== 0))
    throw new SerializationError("object: expected a parameter set's name (a-z, 0-9, _, padded with zeros); the object is damaged");
  let parameters: ParameterSet;
  try {
    parameters = parameterSet(engine, name);
  } catch (error) {
    if (error instanceof ParameterError) throw new SerializationError(`object: its parameter set cannot be used: ${error.message}`);
    throw error;
  }
  if (!equalBytes(parameters.digest, data.subarray(48, 80)))
    throw new KeyMismatchError(
      `object: it was made with another version of parameter set '${name}'; make new keys and ciphertexts with this release`,
    );
  return parameters;
}

/** The versions of the format that are read; the last one is written. */
function versionsOf(kind: number): number[] {
  return kind === EVALUATION_KEYS ? [2, 3] : [1];
}

function label(kind: number): string {
  return LABELS[kind] ?? "object";
}

function damaged(kind: number, what: string): SerializationError {
  return new SerializationError(`${label(kind)}: ${what}; the object is damaged, transfer it again`);
}

export function equalBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

export function hexadecimal(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
