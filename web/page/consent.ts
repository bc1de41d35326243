// What a person is asked in a dialog: large keys, a model that is not what it was, a weak passphrase.

import type { ConsentQuestion } from "../src/index.js";
import { found } from "./elements.js";
import { bytes } from "./words.js";

interface Choice {
  text: string;
  agree: string;
  refuse: string;
}

let before: Promise<unknown> = Promise.resolve();

/** One question after the other; Escape refuses. */
export function agreedInDialog(choice: Choice): Promise<boolean> {
  const answer = before.then(() => shown(choice));
  before = answer;
  return answer;
}

export function confirmed(request: ConsentQuestion): Promise<boolean> {
  return agreedInDialog(request.kind === "keys" ? ofKeys(request) : ofModel(request));
}

function ofKeys({ bytes: count, makingSeconds, sendingSeconds }: Extract<ConsentQuestion, { kind: "keys" }>): Choice {
  const text =
    `This model needs evaluation keys of ${bytes(count)}. This browser makes them in about ${makingSeconds} seconds; ` +
    `sending them takes about ${sendingSeconds} seconds at 10 Mbit/s.`;
  return { text, agree: "Make and send them", refuse: "Do not make them" };
}

function ofModel({ message }: Extract<ConsentQuestion, { kind: "model" }>): Choice {
  const text = `The ${message}. If nobody told you of a new model, ask who runs the service before you go on. Nothing was encrypted for it yet.`;
  return { text, agree: "Use it from now on", refuse: "Do not use it" };
}

function shown({ text, agree, refuse }: Choice): Promise<boolean> {
  const dialog = found("consent-dialog", HTMLDialogElement);
  found("consent-text", HTMLParagraphElement).textContent = text;
  found("consent-agree", HTMLButtonElement).textContent = agree;
  found("consent-refuse", HTMLButtonElement).textContent = refuse;
  dialog.returnValue = "";
  dialog.showModal();
  found("consent-refuse", HTMLButtonElement).focus();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "agree"), { once: true }));
}
