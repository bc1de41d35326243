// What a form is, and what it says when the person has left something out.

import type { WholeSample } from "./messages.js";

/** Why there is no sample yet, and the field that needs a person; none for what is drawn. */
export class Missing {
  constructor(
    readonly text: string,
    readonly field: HTMLElement | null = null,
  ) {}
}

export interface Form {
  /** Says with an event "input" that the sample is another one. */
  element: HTMLElement;
  /** The sample, or what is missing. */
  numbers(): number[] | WholeSample | Missing;
  /** What the answer to the sample may be wrong for, told with it; never the values. */
  doubts?(): string[];
  /** Names of the model's outputs, as far as they are known. */
  classes: readonly string[];
  /** Whether the scores are logarithms of odds: the model was trained so that their softmax gives probabilities. */
  isLogits: boolean;
}
