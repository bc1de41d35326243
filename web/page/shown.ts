// What is shown of ciphertexts and answers.

import { context, found, made } from "./elements.js";
import type { Form } from "./missing.js";
import type { Scored } from "./messages.js";
import { softmax } from "./softmax.js";
import { bytes, percent, saidOf, seconds, shortly } from "./words.js";

const NOISE_WIDTH = 64; // pixels
const MOST_ROWS = 96;
const MOST_BYTES_AS_TEXT = 96;

/** Ciphertexts as a picture, a byte each colour, and their first bytes. */
export function showCiphertext(sent: Uint8Array): void {
  const canvas = found("noise", HTMLCanvasElement);
  const rows = Math.min(Math.ceil(sent.length / 3 / NOISE_WIDTH), MOST_ROWS);
  [canvas.width, canvas.height] = [NOISE_WIDTH, rows];
  const pixels = new ImageData(NOISE_WIDTH, rows);
  for (let i = 0; i < NOISE_WIDTH * rows; ++i) pixels.data.set([sent[3 * i] ?? 0, sent[3 * i + 1] ?? 0, sent[3 * i + 2] ?? 0, 255], 4 * i);
  context(canvas).putImageData(pixels, 0, 0);
  const words = [...sent.subarray(0, MOST_BYTES_AS_TEXT)].map((byte) => byte.toString(16).padStart(2, "0"));
  found("bytes", HTMLPreElement).textContent = `${words.join(" ")} ..`;
  found("sent", HTMLParagraphElement).textContent =
    `${bytes(sent.length)} of ciphertexts. This is all that the server sees of your data. Rows of one colour are the header and bits that are always zero.`;
  found("nothing", HTMLParagraphElement).hidden = true;
  found("ciphertext", HTMLDivElement).hidden = false;
}

/** Nothing of an earlier sample stays: neither its ciphertext nor its answer. */
export function hideShown(): void {
  found("nothing", HTMLParagraphElement).hidden = false;
  found("ciphertext", HTMLDivElement).hidden = found("answer", HTMLDivElement).hidden = true;
  found("bytes", HTMLPreElement).textContent = found("label", HTMLElement).textContent = "";
  found("scores", HTMLDivElement).replaceChildren();
}

/** The answer, its scores as bars, and what it cost. */
export function showAnswer(answer: Scored, { classes, isLogits }: Form, facts: Record<string, unknown>): void {
  const shares = isLogits ? softmax(answer.scores) : answer.scores;
  const best = answer.scores.indexOf(Math.max(...answer.scores));
  const name = (i: number): string => classes[i] ?? `output ${i}`;
  const isIndex = answer.label !== null && /^\d+$/.test(answer.label) && !classes.includes(answer.label);
  const label =
    answer.label === null
      ? answer.scores.length > 1
        ? name(best)
        : shortly(answer.scores[0] ?? NaN)
      : isIndex
        ? (classes[Number(answer.label)] ?? answer.label)
        : (classes.find((each) => each === answer.label?.replaceAll("_", " ")) ?? answer.label);
  found("label", HTMLElement).textContent = label;
  found("scores", HTMLDivElement).replaceChildren(
    ...(shares.length > 1 ? shares.map((_, i) => bar(name(i), shares, i, i === best, isLogits)) : []),
  );
  found("scale", HTMLParagraphElement).hidden = !isLogits;
  const costs: [string, string][] = [
    ["Time for everything", seconds(answer.seconds)],
    ["Time on the server", seconds(answer.computeSeconds)],
    ["Evaluation keys sent", answer.uploadBytes === 0 ? "none: the server has them" : bytes(answer.uploadBytes)],
    ["Encrypted data sent", bytes(answer.sent.length)],
    ["Encrypted answer received", bytes(answer.receivedBytes)],
    ["Security", `${saidOf(facts["security_bits"])} bits, parameter set ${saidOf(facts["parameter_set"])}`],
  ];
  const rows = costs.flatMap(([term, value]) => [made("dt", { textContent: term }), made("dd", { textContent: value })]);
  found("costs", HTMLDListElement).replaceChildren(...rows);
  found("answer", HTMLDivElement).hidden = false;
}

/** Beside the answer, what it may be wrong for. */
export function showWarnings(warnings: readonly string[]): void {
  const place = found("warnings", HTMLParagraphElement);
  place.textContent = warnings.map((each) => `Note: ${each}.`).join(" ");
  place.hidden = warnings.length === 0;
}

/** From the least score (0 where none is below) to the largest; of logits from 0 to 1. */
function bar(name: string, scores: number[], i: number, isBest: boolean, isLogits: boolean): HTMLElement {
  const value = scores[i] as number;
  const [low, high] = isLogits ? [0, 1] : [Math.min(0, ...scores), Math.max(...scores)];
  const text = isLogits ? percent(value) : value.toFixed(2);
  const meter = made("meter", { min: low, max: high > low ? high : low + 1, value });
  meter.setAttribute("aria-label", `${name}: ${text}`);
  return made(
    "div",
    { className: isBest ? "bar best" : "bar" },
    made("span", { textContent: name }),
    meter,
    made("span", { textContent: text }),
  );
}
