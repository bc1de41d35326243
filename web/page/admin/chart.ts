// A line or two over time, as SVG; what they say is in words above them.

import { made } from "../elements.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, MARGIN] = [300, 60, 3];

export class Chart {
  readonly element: HTMLElement;
  readonly #caption = made("figcaption");
  readonly #picture = document.createElementNS(SVG, "svg");
  readonly #lines: SVGPolylineElement[];

  constructor(lines: 1 | 2) {
    this.#lines = ["first", "second"].slice(0, lines).map((name) => {
      const line = document.createElementNS(SVG, "polyline");
      line.setAttribute("class", name);
      return line;
    });
    this.#picture.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.#picture.setAttribute("preserveAspectRatio", "none");
    this.#picture.setAttribute("class", "chart");
    this.#picture.setAttribute("role", "img");
    this.#picture.append(...this.#lines);
    this.element = made("figure", {}, this.#caption, this.#picture);
  }

  /** As many lists of numbers, the oldest first, as it has lines; from 0 to the largest of them. */
  show(text: string, ...values: number[][]): void {
    this.#caption.textContent = text;
    this.#picture.setAttribute("aria-label", text);
    const top = Math.max(1e-9, ...values.flat());
    values.forEach((numbers, i) => {
      const x = (j: number): number => (WIDTH * j) / Math.max(1, numbers.length - 1);
      const y = (value: number): number => HEIGHT - MARGIN - ((HEIGHT - 2 * MARGIN) * value) / top;
      this.#lines[i]?.setAttribute("points", numbers.map((value, j) => `${x(j).toFixed(1)},${y(value).toFixed(1)}`).join(" "));
    });
  }
}
