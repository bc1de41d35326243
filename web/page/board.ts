// The board a digit is drawn on: mouse, finger or pen; the keyboard chooses a digit that is there already.

import { type Point, type Stroke } from "./digit_image.js";
import { changed, context, made } from "./elements.js";
import { type Form, Missing } from "./missing.js";

/** What a model reads of a drawing. */
export interface Reading {
  /** side x side numbers; null without a stroke. */
  image: (strokes: readonly Stroke[]) => Float64Array | null;
  side: number;
  /** The number that full ink has. */
  most: number;
  /** What is encrypted, in words. */
  encrypted: string;
  samples: readonly Sample[];
}

/** A digit to choose: strokes, or the numbers themselves. */
export type Sample = { name: string; strokes: readonly Stroke[] } | { name: string; numbers: readonly number[] };

const DIGITS = Array.from({ length: 10 }, (_, digit) => String(digit));
const PIXELS = 280;
const LINE = 18; // width, in pixels
const MARGIN = 40;

export function board({ image: read, side, most, encrypted, samples }: Reading): Omit<Form, "isLogits"> {
  const canvas = made("canvas", { width: PIXELS, height: PIXELS, className: "board" });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Board: draw a digit with the mouse or a finger, or choose one below");
  const seen = made("canvas", { width: side, height: side });
  seen.setAttribute("aria-hidden", "true");
  let strokes: Point[][] = [];
  let chosen: readonly number[] | null = null; // numbers in place of strokes

  const image = (): readonly number[] | null => {
    if (chosen !== null) return chosen;
    const drawn = read(strokes);
    return drawn === null ? null : [...drawn];
  };
  const show = (): void => {
    drawStrokes(canvas, strokes);
    drawImage(seen, side, most, image());
    if (chosen !== null) drawBlocks(canvas, seen);
  };
  follow(
    canvas,
    (point, begins) => {
      chosen = null;
      if (begins) {
        strokes.push([]);
        changed(canvas);
      }
      strokes.at(-1)?.push(point);
      drawStrokes(canvas, strokes);
    },
    show,
  );

  const choose = (sample: Sample | null): void => {
    strokes = sample !== null && "strokes" in sample ? fitted(sample.strokes) : [];
    chosen = sample !== null && "numbers" in sample ? sample.numbers : null;
    show();
    changed(canvas);
  };
  const buttons = samples.map((sample) => made("button", { type: "button", textContent: sample.name, onclick: () => choose(sample) }));
  buttons.forEach((button) => button.setAttribute("aria-label", `Sample digit ${button.textContent}`));
  const clear = made("button", { type: "button", textContent: "Clear", onclick: () => choose(null) });
  const element = made(
    "div",
    {},
    canvas,
    made("div", { className: "seen" }, seen, made("p", { className: "quiet", textContent: `This picture is encrypted, as ${encrypted}.` })),
    made("p", { className: "quiet", textContent: "Draw a digit, or choose one:" }),
    made("div", { className: "digits" }, ...buttons, clear),
  );
  show();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  const numbers = (): number[] | Missing => {
    const found = image();
    return found === null ? new Missing("Draw a digit first, or choose one.") : [...found];
  };
  return { element, numbers, classes: DIGITS };
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

function drawImage(canvas: HTMLCanvasElement, side: number, most: number, image: readonly number[] | null): void {
  const pixels = new ImageData(side, side);
  for (let i = 0; i < side * side; ++i) {
    const value = (255 * (image?.[i] ?? 0)) / most;
    pixels.data.set([value, value, value, 255], 4 * i);
  }
  context(canvas).putImageData(pixels, 0, 0);
}

/** Numbers that nobody drew, as they are. */
function drawBlocks(canvas: HTMLCanvasElement, image: HTMLCanvasElement): void {
  const drawing = context(canvas);
  drawing.imageSmoothingEnabled = false;
  drawing.drawImage(image, 0, 0, PIXELS, PIXELS);
}
