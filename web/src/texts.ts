// Texts as counts of their words or pieces: models/client_steps/texts.py. Its rules are Python's, which differ from those of JavaScript's
// regular expressions (what a word or a space is); characters are code points.

import { type FirstStep, type Given, MOST_COLUMNS, type Run } from "./columns.js";
import { ShapeError } from "./errors.js";
import { chosen, demand, entries, type Fields, flag, integer, text } from "./fields.js";
import { checkPieces } from "./step_sizes.js";
import type { Unfit } from "./unfit.js";

const WORDS = /[\p{L}\p{N}_]+/gu;
const LONGER_WORDS = /[\p{L}\p{N}_]{2,}/gu;
// Characters that Python calls spaces: those of bidirectional class WS, B or S, and of category Zs.
const SPACE = "\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const NOT_SPACES = new RegExp(`[^${SPACE}]+`, "gu");
const SEVERAL_SPACES = new RegExp(`[${SPACE}]{2,}`, "gu");

// By the pattern that Python has. A word that is taken whole needs no look at what is beside it.
const TOKENS: Readonly<Record<string, RegExp>> = {
  "(?u)\\b\\w\\w+\\b": LONGER_WORDS,
  "(?u)\\b\\w+\\b": WORDS,
  "\\b\\w\\w+\\b": LONGER_WORDS,
  "\\b\\w+\\b": WORDS,
  "(?u)\\w+": WORDS,
  "\\w+": WORDS,
  "\\S+": NOT_SPACES,
  "[a-z]+": /[a-z]+/gu,
  "[a-zA-Z]+": /[a-zA-Z]+/gu,
  "[a-z0-9]+": /[a-z0-9]+/gu,
  "[a-zA-Z0-9]+": /[a-zA-Z0-9]+/gu,
  "(?u)\\b[a-zA-Z]\\w+\\b": /(?<![\p{L}\p{N}_])[a-zA-Z][\p{L}\p{N}_]+/gu,
};
const LONGEST = 64; // words or characters of a piece
const MOST_UTF8_BYTES = 3; // of a unit of UTF-16

/** Where a piece counts, null: nowhere. */
type Feature = (piece: string) => { column: number; amount: number } | null;

/** Texts [samples] or [samples, 1] to counts [samples, features] of a vocabulary, or of as many hashes. */
export function texts(given: Fields): FirstStep {
  const vocabulary = entries(given["vocabulary"], MOST_COLUMNS).map(text);
  const hashed = integer(given["hashed"], 0, MOST_COLUMNS);
  const [signed, lowercase, binary] = [flag(given["signed"]), flag(given["lowercase"]), flag(given["binary"])];
  demand(vocabulary.length > 0 !== hashed > 0, "a vocabulary, or a number of features");
  const accents = text(given["accents"]);
  demand(["", "ascii", "unicode"].includes(accents), "a rule for accents: ascii, unicode or none");
  const pieces = piecesOf(given);
  const [shortest, longest] = [integer(given["shortest"]), integer(given["longest"])];
  const pieceCharacters = ((shortest + longest) * (longest - shortest + 1)) / 2;
  const feature = hashed > 0 ? hashedFeature(hashed, signed) : knownFeature(vocabulary);
  const width = hashed || vocabulary.length;
  const run: Run = (x, unfit) => {
    const found = listedTexts(x, unfit);
    checkPieces(found, pieceCharacters);
    const data = new Float64Array(found.length * width);
    found.forEach((each, row) => {
      const counts = data.subarray(row * width, (row + 1) * width);
      const plain = plainText(each, lowercase, accents);
      for (const piece of pieces(hashed > 0 ? plain.replace(/\p{Surrogate}/gu, "?") : plain)) {
        const place = feature(piece);
        if (place !== null) counts[place.column] = binary ? 1 : (counts[place.column] as number) + place.amount;
      }
    });
    return { shape: [found.length, width], data };
  };
  return { run, labels: () => vocabulary, expected: { kind: "texts" }, noSamples: [] };
}

/** An empty one in the place of what is none. */
function listedTexts(x: Given, unfit: Unfit): string[] {
  if (!Array.isArray(x) || x.some((each) => Array.isArray(each) && each.length !== 1))
    throw new ShapeError("input: expected texts, an array of shape ['samples']; pass a list of texts");
  const found: unknown[] = x.map((each: unknown) => (Array.isArray(each) ? each[0] : each));
  const strange = Float64Array.from(found, (each) => Number(typeof each !== "string"));
  unfit.taken({ shape: [found.length], data: strange }, Boolean, () => 0);
  return found.map((each) => (typeof each === "string" ? each : ""));
}

// --- features ---

function knownFeature(vocabulary: string[]): Feature {
  const columns = new Map<string, number>();
  vocabulary.forEach((word, column) => columns.set(word, column));
  return (piece) => {
    const column = columns.get(piece);
    return column === undefined ? null : { column, amount: 1 };
  };
}

function hashedFeature(count: number, signed: boolean): Feature {
  const [encoder, buffer] = [new TextEncoder(), new Uint8Array(MOST_UTF8_BYTES * LONGEST * 2)];
  return (piece) => {
    const bytes =
      MOST_UTF8_BYTES * piece.length > buffer.length
        ? encoder.encode(piece)
        : buffer.subarray(0, encoder.encodeInto(piece, buffer).written);
    const hash = murmurHash(bytes);
    return { column: Math.abs(hash) % count, amount: signed && hash < 0 ? -1 : 1 };
  };
}

/** MurmurHash3 of 32 bits with seed 0, as a signed number. Source: [App11]. */
export function murmurHash(bytes: Uint8Array): number {
  const full = bytes.length - (bytes.length % 4);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let value = 0;
  for (let start = 0; start < full; start += 4) {
    value ^= scrambled(view.getUint32(start, true));
    value = (value << 13) | (value >>> 19);
    value = (Math.imul(value, 5) + 0xe6546b64) | 0;
  }
  if (full < bytes.length) {
    let block = 0;
    for (let i = bytes.length - 1; i >= full; --i) block = (block << 8) | (bytes[i] as number);
    value ^= scrambled(block);
  }
  value ^= bytes.length;
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
  return value ^ (value >>> 16);
}

function scrambled(block: number): number {
  const mixed = Math.imul(block, 0xcc9e2d51);
  return Math.imul((mixed << 15) | (mixed >>> 17), 0x1b873593);
}

// --- pieces ---

function piecesOf(given: Fields): (text: string) => Iterable<string> {
  const [analyzer, pattern] = [text(given["analyzer"]), chosen(TOKENS, text(given["pattern"]), "one of the known patterns of words")];
  const stop = new Set(entries(given["stop"], MOST_COLUMNS).map(text));
  const longest = integer(given["longest"], 1, LONGEST);
  const shortest = integer(given["shortest"], 1, longest);
  const analyzers: Readonly<Record<string, (text: string) => Iterable<string>>> = {
    word: (all) =>
      runs(
        (all.match(pattern) ?? []).filter((word) => !stop.has(word)),
        shortest,
        longest,
      ),
    char: (all) => runsOfCharacters(all.replace(SEVERAL_SPACES, " "), shortest, longest),
    char_wb: (all) => piecesOfWords(all.match(NOT_SPACES) ?? [], shortest, longest),
  };
  return chosen(analyzers, analyzer, "an analyzer: word, char or char_wb");
}

function* runs(parts: string[], shortest: number, longest: number): Iterable<string> {
  for (let length = shortest; length <= Math.min(longest, parts.length); ++length)
    for (let start = 0; start + length <= parts.length; ++start) yield parts.slice(start, start + length).join(" ");
}

/** The same of characters, which are units of UTF-16 or pairs of them. */
function* runsOfCharacters(text: string, shortest: number, longest: number): Iterable<string> {
  const starts = [0];
  for (const character of text) starts.push((starts.at(-1) as number) + character.length);
  for (let length = shortest; length <= Math.min(longest, starts.length - 1); ++length)
    for (let start = 0; start + length < starts.length; ++start) yield text.slice(starts[start], starts[start + length]);
}

/** Of each word between two spaces; one that is shorter than a piece counts once. */
function* piecesOfWords(words: string[], shortest: number, longest: number): Iterable<string> {
  for (const word of words) {
    yield* runsOfCharacters(` ${word} `, Math.min(shortest, [...word].length + 2), longest);
  }
}

// --- plain texts ---

function plainText(text: string, lowercase: boolean, accents: string): string {
  const found = lowercase ? text.toLowerCase() : text;
  if (accents === "") return found;
  const takenApart = found.normalize("NFKD");
  if (accents === "ascii") return takenApart.replace(/[^\0-\x7f]/g, "");
  return takenApart.replace(/\p{M}/gu, (mark) => (isCombining(mark) ? "" : mark));
}

const HIGHEST = "\u0345"; // the character of the highest combining class, 240, and the only one of it

/** Whether its combining class is not 0, which JavaScript does not tell: then normalising moves it before a mark of a higher class. */
export function isCombining(character: string): boolean {
  return character === HIGHEST || (HIGHEST + character).normalize("NFD") !== HIGHEST + character.normalize("NFD");
}
