// Fields of a form: a label, what is filled in, and room for what is wrong with it.

import { made } from "./elements.js";

const LONGEST_WORD = 20; // of what is said to be no number

/** `hint` is part of the label, so that everybody has it before the field. */
export function fieldOf(name: string, input: HTMLElement, hint = ""): HTMLElement {
  const label = made("label", { htmlFor: input.id, textContent: name });
  if (hint !== "") label.append(made("span", { className: "hint", textContent: ` ${hint}` }));
  return made("div", { className: "field" }, label, input);
}

/** Empty: nothing is sent that nobody has typed. */
export function numbersArea(id: string, rows: number): HTMLTextAreaElement {
  return made("textarea", { id, rows, required: true, placeholder: "0.5, 1, -2", spellcheck: false });
}

/** The numbers, or the first word that is none. */
export function numbersIn({ value }: HTMLTextAreaElement): number[] | string {
  const words = value.split(/[\s,;]+/).filter((word) => word !== "");
  const wrong = words.find((word) => !Number.isFinite(Number(word)));
  return wrong === undefined ? words.map(Number) : `'${wrong.slice(0, LONGEST_WORD)}'`;
}
