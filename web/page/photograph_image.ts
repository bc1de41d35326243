// Pixels to the numbers that models of photographs read.

/** Red, green, blue [3, side, side] in [0, 1], each the mean over its part of the picture, from RGBA bytes [size, size, 4]. */
export function boxed(pixels: ArrayLike<number>, size: number, side: number): Float64Array {
  const parts = Array.from({ length: side }, (_, i) => weights(i, size / side, size));
  const image = new Float64Array(3 * side * side);
  for (let row = 0; row < side; ++row)
    for (let column = 0; column < side; ++column)
      for (const [y, tall] of parts[row] ?? [])
        for (const [x, wide] of parts[column] ?? [])
          for (let colour = 0; colour < 3; ++colour) {
            const place = (colour * side + row) * side + column;
            image[place] = (image[place] as number) + (tall * wide * (pixels[4 * (y * size + x) + colour] as number)) / 255;
          }
  return image.map((value) => Math.min(value, 1)); // sums end in other last bits
}

/** The pixels that part i covers, and how much of the part each is. */
function weights(i: number, width: number, size: number): [number, number][] {
  const [start, end] = [i * width, (i + 1) * width];
  const found: [number, number][] = [];
  for (let x = Math.floor(start); x < Math.min(Math.ceil(end), size); ++x) {
    const part = (Math.min(end, x + 1) - Math.max(start, x)) / width;
    if (part > 0) found.push([x, part]);
  }
  return found;
}
