// A table that is shown again and again: rows keep their elements, so that neither the focus nor a reader's place is lost. Names come from
// strangers and are text, never markup.

import { made } from "../elements.js";

export interface Column<R> {
  title: string;
  kind?: "number" | "name";
  text(row: R): string;
}

export interface Action<R> {
  title: string;
  /** Whether the row can have it now. */
  fits(row: R): boolean;
  run(row: R): void;
}

interface Shown<R> {
  element: HTMLTableRowElement;
  cells: HTMLTableCellElement[];
  buttons: HTMLButtonElement[];
  row: R;
}

export class LiveTable<R> {
  readonly element: HTMLElement;
  readonly #body = made("tbody");
  readonly #empty: HTMLParagraphElement;
  readonly #shown = new Map<string, Shown<R>>();

  /** The first column says which row it is: it is the row's header, and actions are named after it. */
  constructor(
    caption: string,
    private readonly columns: readonly Column<R>[],
    private readonly identity: (row: R) => string,
    private readonly actions: readonly Action<R>[] = [],
    nothing = "None.",
  ) {
    const heads = columns.map(({ title, kind }) => head(title, kind));
    if (actions.length > 0) heads.push(head("Actions"));
    const table = made("table", {}, made("caption", { textContent: caption }), made("thead", {}, made("tr", {}, ...heads)), this.#body);
    this.#empty = made("p", { className: "quiet", textContent: nothing, hidden: true });
    this.element = made("div", { className: "scroll", tabIndex: 0 }, table, this.#empty);
    this.element.setAttribute("role", "region");
    this.element.setAttribute("aria-label", caption);
  }

  show(rows: readonly R[]): void {
    const wanted = new Set(rows.map(this.identity));
    for (const [identity, { element }] of this.#shown)
      if (!wanted.has(identity)) {
        element.remove();
        this.#shown.delete(identity);
      }
    rows.forEach((row, i) => {
      const shown = this.#updated(row);
      // Only what stands elsewhere is moved: an element that moves loses the focus.
      if (this.#body.children[i] !== shown.element) this.#body.insertBefore(shown.element, this.#body.children[i] ?? null);
    });
    this.#empty.hidden = rows.length > 0;
  }

  #updated(row: R): Shown<R> {
    const identity = this.identity(row);
    const shown = this.#shown.get(identity) ?? this.#made(row);
    this.#shown.set(identity, shown);
    shown.row = row;
    this.columns.forEach((column, i) => {
      const [cell, text] = [shown.cells[i] as HTMLTableCellElement, column.text(row)];
      if (cell.textContent !== text) cell.textContent = text;
    });
    this.actions.forEach((action, i) => ((shown.buttons[i] as HTMLButtonElement).hidden = !action.fits(row)));
    return shown;
  }

  #made(row: R): Shown<R> {
    const cells = this.columns.map(({ kind = "" }, i) => {
      const cell = made(i === 0 ? "th" : "td", { className: kind });
      if (i === 0) cell.scope = "row";
      return cell;
    });
    const element = made("tr", {}, ...cells);
    const buttons = this.actions.map(({ title }) => made("button", { type: "button", textContent: title }));
    const shown = { element, cells, buttons, row };
    this.actions.forEach(({ title, run }, i) => {
      const button = buttons[i] as HTMLButtonElement;
      button.setAttribute("aria-label", `${title}: ${this.columns[0]?.text(row)}`);
      button.addEventListener("click", () => run(shown.row));
    });
    if (buttons.length > 0) element.append(made("td", {}, ...buttons));
    return shown;
  }
}

function head(title: string, kind = ""): HTMLTableCellElement {
  return made("th", { textContent: title, className: kind, scope: "col" });
}
