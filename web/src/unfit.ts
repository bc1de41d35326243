// What becomes of values that a step does not take: models/client_steps/unfit.py, of which this client, that asks servers only, has the half that
// refuses nothing. A request that is refused for its values tells the server something of them: it chose the steps, and sees that none arrives.

import { mapped, type Tensor, tensor } from "./arrays.js";
import { RangeReport, type RangeWarning } from "./range_report.js";

type Labels = readonly string[] | null;

const DIGITS = "\\d+(?:_\\d+)*";
// What Python's float takes.
const NUMBER = new RegExp(`^[+-]?(?:(?:${DIGITS}(?:\\.(?:${DIGITS})?)?|\\.${DIGITS})(?:e[+-]?${DIGITS})?|inf(?:inity)?|nan)$`, "i");

/** Takes the nearest value in the place of one that a step does not take, or 0 for a missing one, and says where. */
export class Unfit {
  readonly #report = new RangeReport();
  #labels: (x: Tensor) => Labels = () => null;

  /** `labels`: what to call the columns of an array that is looked at next; null: nothing. */
  at(labels: (x: Tensor) => Labels): void {
    this.#labels = labels;
  }

  /** x, with `instead` in the place of what is bad. */
  taken(x: Tensor, bad: (value: number, i: number) => boolean, instead: (value: number, i: number) => number): Tensor {
    if (!x.data.some(bad)) return x;
    this.#report.add(x, bad, () => this.#labels(x));
    return mapped(x, (value, i) => (bad(value, i) ? instead(value, i) : value));
  }

  /** Cells that are no numbers become NaN. ShapeError: for arrays by their shape. */
  numbers(x: unknown): Tensor {
    const strange = new Set<number>();
    const found = tensor(x, (cell, i) => {
      const value = typeof cell === "string" ? numberIn(cell) : null;
      if (value === null) strange.add(i);
      return value ?? NaN;
    });
    return this.taken(found, (_, i) => strange.has(i), Number);
  }

  withoutMissing(x: Tensor): Tensor {
    return this.taken(x, Number.isNaN, () => 0);
  }

  /** The largest numbers in the place of infinite ones; NaN passes. */
  withoutInfinite(x: Tensor): Tensor {
    return this.taken(
      x,
      (value) => Math.abs(value) === Infinity,
      (value) => Math.sign(value) * Number.MAX_VALUE,
    );
  }

  /** null when nothing was replaced. */
  get warning(): RangeWarning | null {
    return this.#report.told(
      "ReplacedValuesWarning",
      (where) => `values that the model does not take${where === "" ? "" : ` (${where})`}`,
      "the nearest that it takes are sent in their place (0 for missing ones), because a refusal would tell the server of them",
    );
  }
}

/** null: the text is none. */
function numberIn(text: string): number | null {
  const plain = text.trim();
  if (!NUMBER.test(plain)) return null;
  const name = /[a-df-z]/i.exec(plain)?.[0]?.toLowerCase();
  if (name === "n") return NaN;
  if (name === "i") return plain.startsWith("-") ? -Infinity : Infinity;
  return Number(plain.replaceAll("_", ""));
}
