// Values that a model does not take as they are: collected over the steps of a call, told once. models/client_steps/unfit.py.

import type { Tensor } from "./arrays.js";

const MOST_NAMED = 8;

/** What was beyond the calibrated range and counts as its end, or what the model does not take and was replaced; never the values themselves. */
export interface RangeWarning {
  name: "CalibratedRangeWarning" | "ReplacedValuesWarning";
  /** All of it in words. */
  message: string;
  /** How many samples have such values, and how many there were. */
  samples: number;
  of: number;
  values: number;
  /** Where they are, of models of tables. */
  columns: string[];
}

export type OnWarning = (warning: RangeWarning) => void;

export function warnOnConsole({ name, message }: RangeWarning): void {
  console.warn(`${name}: ${message}`);
}

export class RangeReport {
  #values = 0;
  #samples: Uint8Array | null = null;
  readonly #columns = new Set<string>();

  /** `outside(value, i)` of number i of x [samples, ..]; `labels()` of the columns of a table, null for what is no table. */
  add(x: Tensor, outside: (value: number, i: number) => boolean, labels: () => readonly string[] | null): void {
    if (x.data.length === 0) return;
    const size = x.data.length / (x.shape[0] ?? 1);
    const columns = new Uint8Array(size);
    x.data.forEach((value, i) => {
      if (!outside(value, i)) return;
      ++this.#values;
      this.#samples ??= new Uint8Array(x.shape[0] ?? 1);
      this.#samples[Math.floor(i / size)] = columns[i % size] = 1;
    });
    const names = columns.includes(1) ? labels() : null;
    if (names?.length !== size) return;
    columns.forEach((isOutside, c) => {
      if (isOutside === 1) this.#columns.add(names[c] as string);
    });
  }

  /** null when nothing was added. */
  get warning(): RangeWarning | null {
    return this.told(
      "CalibratedRangeWarning",
      (where) =>
        `values beyond the calibrated range (${this.#values} value${this.#values === 1 ? "" : "s"}${where === "" ? "" : ` ${where}`})`,
      "they count as its end",
    );
  }

  /** null when nothing was added. `which(where)`: the values, with the columns that they are in; `then`: what becomes of them. */
  told(name: RangeWarning["name"], which: (where: string) => string, then: string): RangeWarning | null {
    if (this.#samples === null) return null;
    const [samples, of, values] = [this.#samples.reduce((sum, each) => sum + each, 0), this.#samples.length, this.#values];
    const columns = [...this.#columns];
    const names = columns.slice(0, MOST_NAMED).map((name) => `'${name}'`);
    if (columns.length > MOST_NAMED) names.push(`${columns.length - MOST_NAMED} more`);
    const where = names.length > 0 ? `in columns ${names.join(", ")}` : "";
    const message = `input: ${samples} of ${of} samples have ${which(where)}; ${then}`;
    return { name, message, samples, of, values, columns };
  }
}
