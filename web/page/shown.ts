// What is shown of ciphertexts and answers.

import { context, found, made } from "./elements.js";
import type { Scored } from "./messages.js";
import { bytes, seconds } from "./words.js";

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
    `${bytes(sent.length)} of ciphertexts. This is all that the server sees of your data; plain rows are the header and bits that are always zero.`;
  found("nothing", HTMLParagraphElement).hidden = true;
  found("ciphertext", HTMLDivElement).hidden = false;
}

/** The answer, its scores as bars, and what it cost. */
export function showAnswer(answer: Scored, classes: readonly string[], facts: Record<string, unknown>): void {
  const best = answer.scores.indexOf(Math.max(...answer.scores));
  const name = (i: number): string => classes[i] ?? String(i);
  const isIndex = answer.label !== null && /^\d+$/.test(answer.label);
  const label =
    answer.label === null
      ? answer.scores.length > 1
        ? name(best)
        : shortly(answer.scores[0] ?? NaN)
      : isIndex
        ? name(Number(answer.label))
        : answer.label;
  found("label", HTMLElement).textContent = label;
  found("scores", HTMLDivElement).replaceChildren(
    ...(answer.scores.length > 1 ? answer.scores.map((_, i) => bar(name(i), answer.scores, i, i === best)) : []),
  );
  const costs: [string, string][] = [
    ["Encrypted, answered, decrypted in", seconds(answer.seconds)],
    ["of which the server computed", seconds(answer.computeSeconds)],
    ["Evaluation keys sent", answer.uploadBytes === 0 ? "none: the server has them" : bytes(answer.uploadBytes)],
    ["Ciphertexts out, back", `${bytes(answer.sent.length)}, ${bytes(answer.receivedBytes)}`],
    ["Security", `${String(facts["security_bits"] ?? "?")} bits, parameter set ${String(facts["parameter_set"] ?? "?")}`],
  ];
  const rows = costs.flatMap(([term, value]) => [made("dt", { textContent: term }), made("dd", { textContent: value })]);
  found("costs", HTMLDListElement).replaceChildren(...rows);
  found("answer", HTMLDivElement).hidden = false;
}

/** From the least score (0 where none is below) to the largest. */
function bar(name: string, scores: number[], i: number, isBest: boolean): HTMLElement {
  const value = scores[i] as number;
  const [low, high] = [Math.min(0, ...scores), Math.max(...scores)];
  const meter = made("meter", { min: low, max: high > low ? high : low + 1, value });
  meter.setAttribute("aria-label", `${name}: ${shortly(value)}`);
  return made(
    "div",
    { className: isBest ? "bar best" : "bar" },
    made("span", { textContent: name }),
    meter,
    made("span", { textContent: shortly(value) }),
  );
}

function shortly(value: number): string {
  return value.toFixed(2);
}
