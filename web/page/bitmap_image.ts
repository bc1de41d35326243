// Strokes to numbers as the digits of the UCI repository have them (optdigits): a bitmap of 32 x 32, normalised as the forms of NIST are, of
// which blocks of 4 x 4 are counted. The box, the removed slant and the width of the line are ours: near what that data set shows.
// Source: Garris et al., NIST Form-Based Handprint Recognition System, NISTIR 5469, 1994.

import type { Point, Stroke } from "./digit_image.js";
import { corner, distanceTo } from "./digit_image.js";

export const BLOCKS = 8; // a side
export const MOST = 16; // pixels of a block
const BITMAP = 32; // pixels a side
const BLOCK = BITMAP / BLOCKS;
const WIDEST = 24; // pixels
const THICKNESS = 2; // half the width of a stroke, in pixels

/** 8 x 8 counts, 0 to 16: upright, as high as the bitmap, in its middle; null without a stroke. */
export function bitmapImage(strokes: readonly Stroke[]): Float64Array | null {
  if (strokes.flat().length === 0) return null;
  const upright = withoutSlant(strokes);
  const points = upright.flat();
  const [low, high] = [corner(points, Math.min), corner(points, Math.max)];
  const [width, height] = [Math.max(high[0] - low[0], 1e-9), Math.max(high[1] - low[1], 1e-9)];
  const scale = Math.min((WIDEST - 1 - 2 * THICKNESS) / width, (BITMAP - 1 - 2 * THICKNESS) / height, Number.MAX_SAFE_INTEGER);
  const middle = (BITMAP - 1) / 2;
  const placed = upright.map((stroke) =>
    stroke.map(([x, y]): Point => [(x - (low[0] + high[0]) / 2) * scale + middle, (y - (low[1] + high[1]) / 2) * scale + middle]),
  );
  return counted(placed);
}

/** Sheared so that the height of its points says nothing of their place. */
function withoutSlant(strokes: readonly Stroke[]): Stroke[] {
  const points = strokes.flat();
  const mean = (axis: 0 | 1): number => points.reduce((sum, point) => sum + point[axis], 0) / points.length;
  const [x0, y0] = [mean(0), mean(1)];
  let [together, along] = [0, 0];
  for (const [x, y] of points) {
    together += (x - x0) * (y - y0);
    along += (y - y0) ** 2;
  }
  const slant = together / Math.max(along, 1e-9);
  return strokes.map((stroke) => stroke.map(([x, y]): Point => [x - slant * y, y]));
}

function counted(strokes: readonly Stroke[]): Float64Array {
  const counts = new Float64Array(BLOCKS * BLOCKS);
  for (let y = 0; y < BITMAP; ++y)
    for (let x = 0; x < BITMAP; ++x)
      if (isInk(x, y, strokes)) {
        const block = Math.floor(y / BLOCK) * BLOCKS + Math.floor(x / BLOCK);
        counts[block] = (counts[block] as number) + 1;
      }
  return counts;
}

function isInk(x: number, y: number, strokes: readonly Stroke[]): boolean {
  return strokes.some((stroke) =>
    stroke.some((point, i) => distanceTo(x, y, stroke[Math.max(i - 1, 0)] as Point, point) <= THICKNESS + 0.5),
  );
}
