// Strokes to an image as MNIST has it: app/cli/shared/sample_digits.py, in its order, so that both give the same numbers.

export type Point = readonly [number, number];
export type Stroke = readonly Point[];

export const SIDE = 28;
const BOX = 20; // pixels that the longer side of a digit fills
const THICKNESS = 1.15; // half the width of a stroke, in pixels

/** 28 x 28 numbers in [0, 1]: scaled to a box of 20 pixels, centre of mass in the middle; null without a stroke. */
export function digitImage(strokes: readonly Stroke[]): Float64Array | null {
  const points = strokes.flat();
  if (points.length === 0) return null;
  const [low, high] = [corner(points, Math.min), corner(points, Math.max)];
  const extent = Math.max(high[0] - low[0], high[1] - low[1], 1e-9);
  const scale = Math.min((BOX - 2 * THICKNESS) / extent, Number.MAX_SAFE_INTEGER);
  const middle = (SIDE - 1) / 2;
  const placed = (shift: Point): Stroke[] =>
    strokes.map((stroke) =>
      stroke.map(([x, y]): Point => [(x - (low[0] + high[0]) / 2) * scale + shift[0], (y - (low[1] + high[1]) / 2) * scale + shift[1]]),
    );
  const mass = centreOfMass(rasterised(placed([middle, middle])));
  return rasterised(placed([2 * middle - mass[0], 2 * middle - mass[1]]));
}

export function corner(points: readonly Point[], extreme: (a: number, b: number) => number): Point {
  return points.reduce((found, point) => [extreme(found[0], point[0]), extreme(found[1], point[1])]);
}

function centreOfMass(ink: Float64Array): Point {
  let [total, x, y] = [0, 0, 0];
  ink.forEach((value, i) => {
    total += value;
    x += value * (i % SIDE);
    y += value * Math.floor(i / SIDE);
  });
  return [x / total, y / total];
}

/** Ink by the distance of a pixel's centre to the nearest segment, soft over one pixel. */
function rasterised(strokes: readonly Stroke[]): Float64Array {
  const ink = new Float64Array(SIDE * SIDE);
  for (const stroke of strokes)
    for (let i = 0; i < stroke.length; ++i) {
      const [from, to] = [stroke[Math.max(i - 1, 0)] as Point, stroke[i] as Point];
      for (let pixel = 0; pixel < ink.length; ++pixel) {
        const distance = distanceTo(pixel % SIDE, Math.floor(pixel / SIDE), from, to);
        ink[pixel] = Math.max(ink[pixel] as number, Math.min(Math.max(THICKNESS + 0.5 - distance, 0), 1));
      }
    }
  return ink;
}

export function distanceTo(x: number, y: number, from: Point, to: Point): number {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const along = ((x - from[0]) * dx + (y - from[1]) * dy) / Math.max(dx * dx + dy * dy, 1e-12);
  const t = Math.min(Math.max(along, 0), 1);
  return Math.hypot(x - from[0] - t * dx, y - from[1] - t * dy);
}
