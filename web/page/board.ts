// The board a digit is drawn on: mouse, finger or pen; the keyboard chooses a digit that is drawn already.

import { digitImage, type Point, SIDE, type Stroke } from "./digit_image.js";
import { context, made } from "./elements.js";
import type { Form } from "./forms.js";

const PIXELS = 280;
const LINE = 18; // width, in pixels
const MARGIN = 40;

/** `samples`: strokes of each digit. */
export function board(samples: readonly (readonly Stroke[])[], classes: readonly string[]): Form {
  const canvas = made("canvas", { width: PIXELS, height: PIXELS, className: "board" });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Board: draw a digit with mouse or finger, or choose one below");
  const seen = made("canvas", { width: SIDE, height: SIDE });
  seen.setAttribute("aria-hidden", "true");
  let strokes: Point[][] = [];

  const show = (): void => {
    drawStrokes(canvas, strokes);
    drawImage(seen, digitImage(strokes));
  };
  follow(
    canvas,
    (point, begins) => {
      if (begins) strokes.push([]);
      strokes.at(-1)?.push(point);
      drawStrokes(canvas, strokes);
    },
    show,
  );

  const choose = (digit: number): void => {
    strokes = fitted(samples[digit] ?? []);
    show();
  };
  const buttons = samples.map((_, digit) => made("button", { type: "button", textContent: String(digit), onclick: () => choose(digit) }));
  buttons.forEach((button, digit) => button.setAttribute("aria-label", `Sample digit ${digit}`));
  const clear = made("button", { type: "button", textContent: "Clear", onclick: () => ((strokes = []), show()) });
  const element = made(
    "div",
    {},
    canvas,
    made("div", { className: "seen" }, seen, made("p", { className: "quiet", textContent: "What is encrypted: 28 x 28 numbers." })),
    made("p", { className: "quiet", textContent: "Draw a digit, or choose one:" }),
    made("div", { className: "digits" }, ...buttons, clear),
  );
  show();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  const numbers = (): number[] | string => {
    const image = digitImage(strokes);
    return image === null ? "Draw a digit first, or choose one." : [...image];
  };
  return { element, numbers, classes };
}

/** Reports the points of a pressed pointer, on a canvas of any size on the screen. */
function follow(canvas: HTMLCanvasElement, report: (point: Point, begins: boolean) => void, ends: () => void): void {
  const place = (event: PointerEvent): Point => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * PIXELS, ((event.clientY - box.top) / box.height) * PIXELS];
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    report(place(event), true);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (canvas.hasPointerCapture(event.pointerId)) report(place(event), false);
  });
  canvas.addEventListener("pointerup", ends);
  canvas.addEventListener("pointercancel", ends);
}

/** In the middle of the board. */
function fitted(strokes: readonly Stroke[]): Point[][] {
  const points = strokes.flat();
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
  const [left, top, width, height] = [
    Math.min(...xs),
    Math.min(...ys),
    Math.max(...xs) - Math.min(...xs),
    Math.max(...ys) - Math.min(...ys),
  ];
  const scale = (PIXELS - 2 * MARGIN) / Math.max(width, height);
  const moved = ([x, y]: Point): Point => [PIXELS / 2 + (x - left - width / 2) * scale, PIXELS / 2 + (y - top - height / 2) * scale];
  return strokes.map((stroke) => stroke.map(moved));
}

function drawStrokes(canvas: HTMLCanvasElement, strokes: readonly Stroke[]): void {
  const drawing = context(canvas);
  drawing.clearRect(0, 0, PIXELS, PIXELS);
  Object.assign(drawing, { lineWidth: LINE, lineCap: "round", lineJoin: "round", strokeStyle: getComputedStyle(canvas).color });
  for (const stroke of strokes) {
    drawing.beginPath();
    stroke.forEach(([x, y]) => drawing.lineTo(x, y));
    const [first] = stroke;
    if (stroke.length === 1 && first !== undefined) drawing.lineTo(first[0] + 0.01, first[1]);
    drawing.stroke();
  }
}

function drawImage(canvas: HTMLCanvasElement, image: Float64Array | null): void {
  const pixels = new ImageData(SIDE, SIDE);
  for (let i = 0; i < SIDE * SIDE; ++i)
    pixels.data.set(
      [255, 255, 255, 255].map((v, c) => (c === 3 ? v : v * (image?.[i] ?? 0))),
      4 * i,
    );
  context(canvas).putImageData(pixels, 0, 0);
}
