// The wire format (docs/reference/wire_format.md): objects of a header, which the engine reads and writes (fhe_core/src/wasm/wire_header.cpp),
// sections and a checksum.

import type { Arena, Engine } from "./engine.js";
import { SerializationError } from "./errors.js";
import { parameterSets, type ParameterSet } from "./parameters.js";
import { digestOf, sha256 } from "./sha256.js";

export const SECRET_KEY = 1;
export const EVALUATION_KEYS = 2;
export const PUBLIC_KEY = 3;
export const CIPHERTEXTS = 4;
export const PACKED_CIPHERTEXTS = 5;
export const SWITCHED_CIPHERTEXTS = 6;

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
const MOST_HEADER_BYTES = 208;
const MAX_RANK = 8;

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

// A header as the engine has it: eight integers, two of what `measure` finds, then reals, a key's identifier and a purpose.
const [TOTAL, SECTIONS, WEIGHT_NORM, SHAPE, KEY_ID, PURPOSE] = [40, 48, 88, 96, 160, 176];

interface Layout {
  headerBytes: number;
  sections: number[];
  total: number;
}

function blockOf({ kind, parameters, seeded, encoding, wordBits, shape, keyId, purpose, weightNorm }: Header): Uint8Array {
  const block = new Uint8Array(parameters.engine.raw("header_block_bytes")());
  const view = new DataView(block.buffer);
  const integers = [
    kind,
    parameters.number,
    Number(seeded),
    encoding,
    wordBits,
    shape.length,
    Number(keyId !== null),
    Number(purpose !== null),
  ];
  integers.forEach((value, i) => view.setUint32(4 * i, value, true));
  view.setFloat64(WEIGHT_NORM, weightNorm, true);
  shape.slice(0, MAX_RANK).forEach((extent, i) => view.setFloat64(SHAPE + 8 * i, extent, true));
  if (keyId !== null) block.set(keyId, KEY_ID);
  if (purpose !== null) block.set(purpose, PURPOSE);
  return block;
}

function layoutOf(view: DataView): Layout {
  const real = (start: number): number => view.getFloat64(start, true);
  const sections = Array.from({ length: view.getUint32(36, true) }, (_, i) => real(SECTIONS + 8 * i));
  return { headerBytes: view.getUint32(32, true), sections, total: real(TOTAL) };
}

/** A header, where the engine has measured it. */
function measured<T>(header: Header, use: (layout: Layout, arena: Arena, address: number) => T): T {
  const { engine } = header.parameters;
  return engine.arena((arena) => {
    const address = arena.put(blockOf(header));
    engine.call("header_measure", address);
    const view = new DataView(engine.copy(address, engine.raw("header_block_bytes")()).buffer);
    return use(layoutOf(view), arena, address);
  });
}

/** Bytes of so many ciphertexts in the largest form that an answer may have. */
export function mostResultBytes(parameters: ParameterSet, count: number): number {
  const shape = [count, ...Array<number>(MAX_RANK - 1).fill(1)];
  const rest = { parameters, seeded: false, keyId: null, shape, encoding: Encoding.Torus, weightNorm: 1, wordBits: 0 };
  const purpose = new Uint8Array(32);
  return Math.max(...[CIPHERTEXTS, PACKED_CIPHERTEXTS].map((kind) => objectBytes({ kind, ...rest, purpose })));
}

export function objectBytes(header: Header): number {
  return measured(header, ({ total }) => total);
}

/** Header, dimensions and purpose. */
export function packHeader(header: Header): Uint8Array {
  const { engine } = header.parameters;
  return measured(header, ({ headerBytes }, arena, address) => {
    const out = arena.allocate(headerBytes);
    engine.call("header_write", address, out);
    return engine.copy(out, headerBytes);
  });
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
  const { header, layout } = read(engine, data, kinds);
  const end = data.length - CHECKSUM_BYTES;
  if (!equalBytes(await digestOf(data.subarray(0, end)), data.subarray(end)))
    throw new SerializationError(
      `${engine.text(engine.raw("kind_label")(header.kind))}: the checksum does not match; the bytes were altered or damaged, transfer the object again`,
    );
  let offset = layout.headerBytes;
  const sections = layout.sections.map((bytes) => data.subarray(offset, (offset += bytes)));
  return { header, sections };
}

/** Every field and the size checked, sections and checksum not looked at. */
export function readHeader(engine: Engine, data: Uint8Array, kinds: number[]): Header {
  return read(engine, data, kinds).header;
}

function read(engine: Engine, data: Uint8Array, kinds: number[]): { header: Header; layout: Layout } {
  const sets = parameterSets(engine);
  const block = engine.arena((arena) => {
    const address = arena.allocate(engine.raw("header_block_bytes")());
    const expected = kinds.reduce((bits, kind) => bits | (1 << kind), 0);
    engine.call("header_read", arena.put(data.subarray(0, MOST_HEADER_BYTES)), data.length, expected, address);
    return engine.copy(address, engine.raw("header_block_bytes")());
  });
  const view = new DataView(block.buffer);
  const [kind, set, seeded, encoding, wordBits, rank, hasKeyId, hasPurpose] = Array.from({ length: 8 }, (_, i) =>
    view.getUint32(4 * i, true),
  ) as [number, number, number, number, number, number, number, number];
  const header = {
    kind,
    parameters: sets[set] as ParameterSet,
    seeded: seeded !== 0,
    keyId: hasKeyId ? block.slice(KEY_ID, PURPOSE) : null,
    shape: Array.from({ length: rank }, (_, i) => view.getFloat64(SHAPE + 8 * i, true)),
    encoding,
    weightNorm: view.getFloat64(WEIGHT_NORM, true),
    purpose: hasPurpose ? block.slice(PURPOSE, PURPOSE + 32) : null,
    wordBits,
  };
  return { header, layout: layoutOf(view) };
}

export function equalBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

export function hexadecimal(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
