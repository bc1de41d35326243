// One list of the service: a filter, a table, and more of it.

import { found, made } from "../elements.js";
import type { Service } from "./service.js";
import { type Action, type Column, LiveTable } from "./table.js";

const ROWS = 25; // of a page

export interface Filter {
  name: string;
  title: string;
  /** Of a choice; a text of this form, in words, without them. */
  values?: readonly string[];
  pattern?: string;
  form?: string;
}

export interface ListDefinition<R> {
  /** Of the section and, as `path`, of the route. */
  id: string;
  title: string;
  caption: string;
  /** Where the rows are in the answer. */
  rows: string;
  columns: readonly Column<R>[];
  identity(row: R): string;
  actions: readonly Action<R>[];
  filters: readonly Filter[];
}

type Attempt = (work: () => Promise<void>) => Promise<void>;

/** What the page does with every list, whatever is in it. */
export interface Refreshable {
  /** The first page again. */
  refresh(): Promise<void>;
  /** The same by itself: not where somebody has gone on to further pages. */
  refreshFirst(): Promise<void>;
  clear(): void;
}

export class ListView<R> implements Refreshable {
  readonly #table: LiveTable<R>;
  readonly #more = made("button", { type: "button", textContent: "More", hidden: true });
  readonly #form = made("form", { className: "filter" });
  #query: Record<string, string> = {}; // as it was sent, not as it is being typed
  #rows: R[] = [];
  #next: string | null = null;
  #turn = 0; // answers to earlier questions are dropped

  constructor(
    private readonly service: Service,
    private readonly definition: ListDefinition<R>,
    attempt: Attempt,
  ) {
    const { id, title, caption, columns, identity, actions, filters } = definition;
    this.#table = new LiveTable(caption, columns, identity, actions);
    this.#form.append(
      ...filters.map((filter) => field(id, filter)),
      made("button", { type: "submit", textContent: filters.length > 0 ? "Show" : "Refresh" }),
    );
    this.#form.setAttribute("aria-label", `Filter: ${title}`);
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#query = Object.fromEntries([...new FormData(this.#form)].map(([name, value]) => [name, String(value).trim()]));
      void attempt(() => this.refresh());
    });
    this.#more.addEventListener("click", () => void attempt(() => this.#append()));
    const heading = made("h2", { id: `${id}-title`, textContent: title });
    const section = made("section", { id }, heading, this.#form, this.#table.element, this.#more);
    section.setAttribute("aria-labelledby", heading.id);
    found("content", HTMLElement).append(section);
  }

  async refresh(): Promise<void> {
    await this.#ask(null);
  }

  async refreshFirst(): Promise<void> {
    if (this.#rows.length <= ROWS) await this.#ask(null);
  }

  clear(): void {
    ++this.#turn;
    this.#form.reset();
    this.#query = {};
    this.#take([], null);
  }

  async #append(): Promise<void> {
    await this.#ask(this.#next);
  }

  async #ask(after: string | null): Promise<void> {
    const turn = ++this.#turn;
    const { id, rows } = this.definition;
    const answer = await this.service.get<Record<string, unknown>>(id, { ...this.#query, limit: String(ROWS), after: after ?? "" });
    if (turn !== this.#turn) return;
    const page = answer[rows] as R[];
    this.#take(after === null ? page : [...this.#rows, ...page], answer["next"] as string | null);
  }

  #take(rows: R[], next: string | null): void {
    this.#rows = rows;
    this.#next = next;
    this.#table.show(rows);
    this.#more.hidden = next === null;
  }
}

function field(list: string, { name, title, values, pattern = "", form = "" }: Filter): HTMLElement {
  const id = `${list}-${name}`;
  const options = ["", ...(values ?? [])].map((value) => made("option", { value, textContent: value === "" ? "any" : value }));
  const text = { id, name, autocomplete: "off", spellcheck: false, pattern, title: form } as const;
  const input = values === undefined ? made("input", text) : made("select", { id, name }, ...options);
  return made("div", {}, made("label", { htmlFor: id, textContent: title }), input);
}
