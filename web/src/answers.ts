// What is looked at in an answer beside its format: its masks, before decryption, and its phases. fhe_core/session/answer_masks.py, models/program/answers.py.

import { roundHalfEven } from "./arrays.js";
import { KeyMismatchError, SerializationError } from "./errors.js";
import type { ParameterSet } from "./parameters.js";

const LIMIT_LOG2 = -96; // log2 of the probability that an honest ciphertext is refused: -64 for 2^32 of them
const BLOCK_BITS = 128; // words that two honest masks never have in common
const MOST_BLOCKS = 64;
const DEVIATIONS = 8; // of the least noise, in half a unit
const FARTHEST = 7 / 8; // of half a unit: an answer that is farther from every multiple is none of this program

/** t, the least with C(words, t + 1) 2^(-bits (t + 1)) below 2^LIMIT_LOG2: uniform words have more zeros with at most that probability. */
export function mostZeroWords(words: number, bits: number): number {
  let [zeros, log2] = [0, Math.log2(words) - bits];
  while (zeros < words && log2 >= LIMIT_LOG2) {
    ++zeros;
    log2 += Math.log2(Math.max(words - zeros, 1) / (zeros + 1)) - bits;
  }
  return zeros;
}

/** log2 of the modulus that words came in; 0: full ones. */
function bitsOf(params: ParameterSet, wordBits: number): number {
  return wordBits === 0 ? Math.log2(Number(params.modulus)) : wordBits;
}

/**
 * SerializationError: a mask has more zero words than uniform ones have, or a block of words in common with another's. `words`: those of the
 * ciphertexts, mask and bodies, in memory.
 */
export function checkMasks(params: ParameterSet, words: Uint8Array, wordBits: number): void {
  const [bits, dimension] = [bitsOf(params, wordBits), params.largeDimension];
  const [rowHalves, wordHalves] = [(params.largeWords * params.memoryBytes) / 2, params.memoryBytes / 2];
  const halves = new Uint16Array(words.buffer, words.byteOffset, words.byteLength / 2);
  const width = Math.max(Math.ceil(BLOCK_BITS / bits), Math.ceil(dimension / MOST_BLOCKS));
  const [most, seen] = [mostZeroWords(dimension, bits), new Map<string, number>()];
  for (let start = 0; start < halves.length; start += rowHalves) {
    const row = halves.subarray(start, start + rowHalves);
    const zeros = zeroWords(row, dimension, wordHalves);
    if (zeros > most)
      throw new SerializationError(
        `answer: expected masks of random words, at most ${most} of ${dimension} of them zero, got ${zeros}; no evaluation gives it, and its ` +
          "decryption would show the secret key: do not trust this server",
      );
    for (let block = 0; (block + 1) * width <= dimension; ++block) {
      const part = row.subarray(block * width * wordHalves, (block + 1) * width * wordHalves);
      const name = `${block}:${String.fromCharCode(...part)}`;
      const other = seen.get(name);
      if (other === undefined) seen.set(name, start);
      else if (row.some((half, i) => half !== halves[other + i]))
        throw new SerializationError(
          "answer: expected masks that differ, got two with the same words; no evaluation gives them, and the difference of their decryptions " +
            "would show the secret key: do not trust this server",
        );
    }
  }
}

function zeroWords(row: Uint16Array, dimension: number, wordHalves: number): number {
  let zeros = 0;
  for (let word = 0; word < dimension; ++word) {
    let any = 0;
    for (let i = 0; i < wordHalves; ++i) any |= row[word * wordHalves + i] as number;
    zeros += Number(any === 0);
  }
  return zeros;
}

/** Of the noise of an answer, as a fraction of the torus: that of re-randomisation, and where words come in few bits that of rounding them. */
function leastDeviation(params: ParameterSet, wordBits: number): number {
  const rounding = wordBits === 0 ? 0 : params.wordRoundingVariance(wordBits);
  return Math.sqrt(params.rerandomisationVariance + rounding);
}

/** Of half of it the noise of re-randomisation is an eighth. */
export function leastUnit(params: ParameterSet): number {
  return 2 * DEVIATIONS * leastDeviation(params, 0);
}

/**
 * Phases as what the program gives: near multiples of its unit (KeyMismatchError: they are not), or where it has none, 0, no finer than the noise
 * that every answer has.
 */
export function settled(params: ParameterSet, phases: Float64Array, unit: number, wordBits: number): Float64Array {
  if (unit > 0) {
    const far = phases.filter((phase) => Math.abs(phase / unit - roundHalfEven(phase / unit)) > FARTHEST / 2).length;
    if (far > 0)
      throw new KeyMismatchError(
        `answer: ${far} of ${phases.length} numbers are none that the program gives, beside noise of ${Math.round(100 * FARTHEST)}% of half a unit; ` +
          "it is not of this program, or was damaged",
      );
    return phases;
  }
  const step = 2 ** (Math.floor(Math.log2(leastDeviation(params, wordBits))) - 1);
  return phases.map((phase) => roundHalfEven(phase / step) * step);
}
