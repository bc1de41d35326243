// Words of strangers, made harmless.

const UNPRINTABLE = /[\p{C}\p{Z}]+/gu; // control and format characters, direction overrides among them; spaces and separators of lines

/** One line of at most `most` characters, without characters that a terminal or a page acts on. */
export function oneLine(text: string, most: number): string {
  const line = text
    .slice(0, 2 * most)
    .replace(UNPRINTABLE, " ")
    .trim();
  return line.length <= most ? line : `${line.slice(0, most)} ..`;
}

/** A text of JSON that a stranger wrote; null for anything else, which `String` may fail at. */
export function textOf(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

/** A number of 0 and more; null for anything else. */
export function countOf(value: unknown): number | null {
  return typeof value === "number" && value >= 0 && value < Infinity ? value : null;
}
