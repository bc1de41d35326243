// Elements of the document, found or made.

/** The element of that id in index.html, of the class that it has there. */
export function found<E extends Element>(id: string, kind: new () => E): E {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`the page has no '${id}'`);
  return element;
}

export function made<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Partial<HTMLElementTagNameMap[K]> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** Tells the page that code has changed the input, as typing does by itself. */
export function changed(element: Element): void {
  element.dispatchEvent(new Event("input", { bubbles: true }));
}

/** Shows an element to everybody: it takes the focus, and the window moves if the element lies outside. */
export function reveal(element: HTMLElement): void {
  if (element.tabIndex < 0) element.tabIndex = -1; // text takes the focus only from code
  element.focus({ preventScroll: true });
  element.scrollIntoView({ block: "nearest" });
}

/** What a canvas is drawn on; its pixels are read again and again. */
export function context(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
  const drawing = canvas.getContext("2d");
  if (drawing === null) throw new Error("this browser draws no pictures");
  return drawing;
}
