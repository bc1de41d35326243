// Server-sent events (WHATWG HTML, section 9.2), with data in JSON.

import { MisbehavingServerError } from "./errors.js";
import { EVENT_BYTES_A_SECOND, FIRST_EVENT_BYTES, MOST_EVENT_BYTES } from "./limits.js";

export type OnEvent = (kind: string, data: Record<string, unknown>) => void;

/** Lines of a stream as they come: each byte is looked at once. */
export class EventReader {
  readonly #onEvent: OnEvent;
  readonly #decoder = new TextDecoder();
  readonly #start = performance.now();
  #bytes = 0; // of all events
  #line = "";
  #size = 0; // of the event so far
  #kind = "message";
  #data: string[] = [];

  constructor(onEvent: OnEvent) {
    this.#onEvent = onEvent;
  }

  /** MisbehavingServerError: an event is too large, or there are too many. */
  take(part: Uint8Array): void {
    this.#bytes += part.length;
    if (this.#bytes > FIRST_EVENT_BYTES + (EVENT_BYTES_A_SECOND * (performance.now() - this.#start)) / 1000)
      throw new MisbehavingServerError(`events: expected at most ${EVENT_BYTES_A_SECOND} bytes a second of them, got more`);
    const text = this.#decoder.decode(part, { stream: true });
    let start = 0;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", start)) {
      this.#grow(end + 1 - start);
      this.#end(this.#line + text.slice(start, end));
      [this.#line, start] = ["", end + 1];
    }
    this.#grow(text.length - start);
    this.#line += text.slice(start);
  }

  #grow(characters: number): void {
    this.#size += characters;
    if (this.#size > MOST_EVENT_BYTES) throw new MisbehavingServerError(`event: expected at most ${MOST_EVENT_BYTES} characters, got more`);
  }

  #end(given: string): void {
    const line = given.endsWith("\r") ? given.slice(0, -1) : given;
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "event") this.#kind = value;
    if (field === "data") this.#data.push(value);
  }

  #dispatch(): void {
    const [kind, text] = [this.#kind, this.#data.join("\n")];
    [this.#kind, this.#data, this.#size] = ["message", [], 0];
    if (text === "") return; // a comment, or an event without data
    let data: unknown = null;
    try {
      data = JSON.parse(text);
    } catch {
      return; // not this service's
    }
    if (typeof data === "object" && data !== null && !Array.isArray(data)) this.#onEvent(kind, data as Record<string, unknown>);
  }
}
