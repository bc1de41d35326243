// An answer in words, where it is more than scores.

import { type Answer, type Expected, isNumbers, type Tensor } from "../src/index.js";
import { shortly } from "./words.js";

const MOST_SHOWN = 6;

/** null where the scores say it: of a network of one output, and of a single number. */
export function labelOf(answer: Answer, expected: Expected): string | null {
  if (Array.isArray(answer)) return [answer[0]].flat().map(String).join(", ");
  if (!isNumbers(answer))
    return Object.entries(answer)
      .map(([name, numbers]) => `${name} ${inWords(numbers)}`)
      .join("; ");
  // Several numbers of a model of tables are outputs of their own, not scores of classes.
  return expected.kind === "numbers" || answer.data.length === 1 ? null : inWords(answer);
}

function inWords({ data }: Tensor): string {
  const more = data.length > MOST_SHOWN ? [`and ${data.length - MOST_SHOWN} more`] : [];
  return [...Array.from(data.subarray(0, MOST_SHOWN), shortly), ...more].join(", ");
}
