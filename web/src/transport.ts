// Requests over HTTP, sent again where that is safe: app/client/transport.py.

import {
  CancelledError,
  ConnectionLostError,
  type FheError,
  MisbehavingServerError,
  namedError,
  OverQuotaError,
  ParameterError,
} from "./errors.js";
import { ServiceError } from "./errors.js";
import { EventReader, type OnEvent } from "./events.js";
import { MOST_ERROR_BYTES, MOST_JSON_BYTES, SLOWEST_DOWNLOAD, SLOWEST_UPLOAD } from "./limits.js";
import { oneLine, textOf } from "./words.js";

export interface Request {
  method: string;
  path: string;
  /** Sending it twice does what sending it once does, so that it is sent again when no answer came. */
  repeatable?: boolean;
  headers?: Record<string, string>;
  body?: Uint8Array;
  json?: unknown;
  /** Bytes that an answer may have, after the platform has unpacked it; by default those of a description in JSON. */
  mostBytes?: number;
  /** Read the answer as server-sent events; a silence as long as the timeout ends them, and `mostSeconds` do. */
  onEvent?: OnEvent;
  mostSeconds?: number;
  /** Statuses of 400 and more that are answers here, not errors. */
  accepted?: number[];
}

export interface Response {
  status: number;
  headers: Headers;
  body: Uint8Array;
}

export interface TransportOptions {
  apiKey?: string | undefined;
  /** Send an API key over plain http to another machine. */
  allowPlainHttp?: boolean | undefined;
  /** Seconds without progress after which a request is given up. Sent again, it has no more than as many once more. */
  timeoutSeconds?: number | undefined;
  /** For the tests. */
  fetch?: typeof fetch | undefined;
}

const ATTEMPTS = 5;
const FIRST_PAUSE_SECONDS = 0.25;
const LONGEST_PAUSE_SECONDS = 30;
const PASSING = [429, 502, 503, 504]; // may be others a moment later; the request was not carried out
const LONGEST_MESSAGE = 500;
const LONGEST_NAME_SHOWN = 40;
const LONGEST_TIMER_MS = 2 ** 30;
const DEFAULT_TIMEOUT_SECONDS = 300; // of Python's client

export class Transport {
  readonly url: string;
  readonly timeoutSeconds: number;
  readonly #headers: Record<string, string>;
  readonly #fetch: typeof fetch;

  /** ParameterError: a URL that is none, or an API key over plain http to another machine. */
  constructor(url: string, { apiKey, allowPlainHttp = false, timeoutSeconds = DEFAULT_TIMEOUT_SECONDS, fetch: given }: TransportOptions) {
    this.url = checkedUrl(url, apiKey !== undefined, allowPlainHttp);
    if (!(timeoutSeconds > 0)) throw new ParameterError("timeoutSeconds: expected a number above 0");
    this.timeoutSeconds = timeoutSeconds;
    this.#headers = apiKey === undefined ? {} : { Authorization: `Bearer ${apiKey}` };
    this.#fetch = given ?? ((...values) => fetch(...values));
  }

  /** The answer; ServiceError and the like for statuses of 400 and more. `signal` cancels. */
  async exchange(request: Request, signal?: AbortSignal): Promise<Response> {
    const start = performance.now();
    for (let attempt = 0; ; ++attempt) {
      let response: Response | null = null;
      let lost: ConnectionLostError | null = null;
      try {
        response = await this.#once(request, signal);
      } catch (error) {
        if (signal?.aborted) throw new CancelledError("request: it was cancelled");
        if (!(error instanceof ConnectionLostError)) throw error;
        lost = error;
      }
      const passing = response === null || (PASSING.includes(response.status) && !request.accepted?.includes(response.status));
      const wait = pause(attempt, response);
      const left = this.timeoutSeconds - (performance.now() - start) / 1000;
      if (!passing || attempt + 1 >= ATTEMPTS || request.repeatable === false || wait > left) {
        if (response === null) throw lost as ConnectionLostError;
        return checked(request, response);
      }
      await sleep(wait, signal);
    }
  }

  async #once(request: Request, signal?: AbortSignal): Promise<Response> {
    const patience = new Patience(this.timeoutSeconds, request.mostSeconds ?? Infinity, signal);
    try {
      const { headers, body } = bodyOf(request, this.#headers);
      patience.allow((body?.length ?? 0) / SLOWEST_UPLOAD);
      const init: RequestInit = { method: request.method, headers, credentials: "omit", cache: "no-store", redirect: "manual" };
      if (body !== undefined) init.body = body as BodyInit;
      const answer = await this.#reached(this.#fetch(this.url + request.path, { ...init, signal: patience.signal }), patience);
      patience.restart();
      const { status, headers: names, ok } = answer;
      if (answer.type === "opaqueredirect" || (status >= 300 && status < 400))
        throw new MisbehavingServerError(`${this.url}: the server sends its clients elsewhere; use the address that it means`, status);
      const packed = ASKS_FOR_PLAIN_BYTES && !PLAIN.includes((names.get("content-encoding") ?? "").toLowerCase());
      if (ok && packed)
        throw new MisbehavingServerError(
          `${this.url}: expected an answer without content encoding; switch that off where it is served`,
          status,
        );
      if (!ok) return { status, headers: names, body: packed ? new Uint8Array() : await this.#beginning(answer, patience) };
      if (request.onEvent === undefined)
        return { status, headers: names, body: await this.#whole(answer, request.mostBytes ?? MOST_JSON_BYTES, patience) };
      const events = new EventReader(request.onEvent);
      await this.#parts(answer, patience, (part) => {
        patience.restart();
        events.take(part);
        return true;
      });
      return { status, headers: names, body: new Uint8Array() };
    } finally {
      patience.end();
    }
  }

  /** All of the body; MisbehavingServerError for more than so many bytes. */
  async #whole(answer: globalThis.Response, most: number, patience: Patience): Promise<Uint8Array> {
    const tooMuch = (): MisbehavingServerError =>
      new MisbehavingServerError(`${this.url}: expected an answer of at most ${most} bytes, got more`, answer.status);
    const stated = statedBytes(answer);
    if (stated > most) throw tooMuch();
    const held = new Held(stated);
    await this.#parts(answer, patience, (part) => {
      if (held.count + part.length > most) throw tooMuch();
      held.add(part);
      return true;
    });
    return held.bytes;
  }

  /** What is looked at of an error, as far as it comes. */
  async #beginning(answer: globalThis.Response, patience: Patience): Promise<Uint8Array> {
    const held = new Held(0);
    try {
      await this.#parts(answer, patience, (part) => {
        held.add(part.subarray(0, MOST_ERROR_BYTES - held.count));
        return held.count < MOST_ERROR_BYTES;
      });
    } catch (error) {
      if (!(error instanceof ConnectionLostError)) throw error; // the status has come
    }
    return held.bytes;
  }

  /** As they come, until `take` wants no more. */
  async #parts(answer: globalThis.Response, patience: Patience, take: (part: Uint8Array) => boolean): Promise<void> {
    if (answer.body === null) return;
    const reader = answer.body.getReader();
    for (;;) {
      const { done, value } = await this.#reached(reader.read(), patience);
      if (done) return;
      patience.allow(value.length / SLOWEST_DOWNLOAD);
      if (!take(value)) return;
    }
  }

  async #reached<T>(work: Promise<T>, patience: Patience): Promise<T> {
    try {
      return await work;
    } catch (error) {
      const reason = patience.over ? "it made no progress" : error instanceof Error ? error.name : "unknown";
      throw new ConnectionLostError(`${this.url}: no answer (${reason}); is the server running there?`);
    }
  }
}

/** Ends a request that makes no progress: whose bytes come more slowly than the slowest connection for longer than the timeout. */
class Patience {
  over = false;
  readonly #controller = new AbortController();
  readonly #caller: AbortSignal | undefined;
  readonly #cancelled = (): void => this.#controller.abort();
  readonly #seconds: number;
  readonly #end: number;
  #start = performance.now();
  #more = 0; // seconds, for bytes that went or came
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(seconds: number, mostSeconds: number, caller: AbortSignal | undefined) {
    this.#seconds = seconds;
    this.#end = this.#start + 1000 * mostSeconds;
    this.#caller = caller;
    caller?.addEventListener("abort", this.#cancelled);
    if (caller?.aborted) this.#cancelled();
    this.#wait();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  allow(seconds: number): void {
    this.#more += seconds;
  }

  /** From now on, whatever came before. */
  restart(): void {
    [this.#start, this.#more] = [performance.now(), 0];
  }

  /** Looks again when what has come by now allows it. */
  #wait(): void {
    const end = Math.min(this.#end, this.#start + 1000 * (this.#seconds + this.#more));
    const left = end - performance.now();
    this.over = left <= 0;
    if (this.over) this.#controller.abort();
    else this.#timer = setTimeout(() => this.#wait(), Math.min(left + 1, LONGEST_TIMER_MS));
  }

  /** Closes the connection too, whatever still comes on it. */
  end(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener("abort", this.#cancelled);
    this.#controller.abort();
  }
}

function bodyOf(request: Request, given: Record<string, string>): { headers: Record<string, string>; body: Uint8Array | undefined } {
  const headers: Record<string, string> = { ...given, ...request.headers };
  if (ASKS_FOR_PLAIN_BYTES) headers["Accept-Encoding"] = "identity";
  if (request.json !== undefined) {
    headers["Content-Type"] = "application/json";
    return { headers, body: new TextEncoder().encode(JSON.stringify(request.json)) };
  }
  if (request.body !== undefined) headers["Content-Type"] = "application/octet-stream";
  return { headers, body: request.body };
}

// Browsers choose encodings by themselves and unpack them; then what comes out is counted.
const ASKS_FOR_PLAIN_BYTES = new globalThis.Request("http://localhost", { headers: { "Accept-Encoding": "identity" } }).headers.has(
  "accept-encoding",
);

const PLAIN = ["", "identity"];

/** What Content-Length says, which of packed answers is something else than what comes out; 0 where it says nothing. */
function statedBytes({ headers }: globalThis.Response): number {
  const stated = headers.get("content-length") ?? "";
  return /^\d+$/.test(stated) ? Number(stated) : 0;
}

/** Bytes that come in parts, however small. */
class Held {
  count = 0;
  #buffer: Uint8Array;

  constructor(expected: number) {
    this.#buffer = new Uint8Array(expected);
  }

  add(part: Uint8Array): void {
    if (this.count + part.length > this.#buffer.length) {
      const larger = new Uint8Array(Math.max(2 * this.#buffer.length, this.count + part.length));
      larger.set(this.bytes);
      this.#buffer = larger;
    }
    this.#buffer.set(part, this.count);
    this.count += part.length;
  }

  get bytes(): Uint8Array {
    return this.#buffer.subarray(0, this.count);
  }
}

/** The same for all ways to write the URL of a server: what its keys and pins are found by, in Python too. */
export function serverName(url: string): string {
  const { protocol, hostname, port, pathname } = new URL(url);
  const host = hostname.replace(/^\[|\]$/g, "");
  return `${protocol}//${host}:${port || (protocol === "https:" ? 443 : 80)}${pathname.replace(/\/+$/, "")}`;
}

/** A token in clear over a network is a token given away. */
function checkedUrl(url: string, hasToken: boolean, allowPlainHttp: boolean): string {
  let parts: URL;
  try {
    parts = new URL(url);
  } catch {
    throw new ParameterError("url: expected http://HOST:PORT or https://HOST");
  }
  if (parts.protocol !== "http:" && parts.protocol !== "https:") throw new ParameterError("url: expected http://HOST:PORT or https://HOST");
  if (parts.username !== "" || parts.password !== "") throw new ParameterError("url: expected no user name or password in it; pass apiKey");
  const loopback = parts.hostname === "localhost" || parts.hostname === "[::1]" || /^127\./.test(parts.hostname);
  if (parts.protocol === "http:" && hasToken && !allowPlainHttp && !loopback)
    throw new ParameterError(
      "url: expected https, because an API key goes with every request; pass allowPlainHttp if the network is yours",
    );
  return url.replace(/\/+$/, "");
}

function pause(attempt: number, response: Response | null): number {
  const asked = response === null ? null : retryAfter(response.headers);
  if (asked !== null) return Math.min(asked, LONGEST_PAUSE_SECONDS);
  return Math.min(FIRST_PAUSE_SECONDS * 2 ** attempt, LONGEST_PAUSE_SECONDS) * (0.5 + Math.random() / 2);
}

export function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const cancelled = (): void => {
      clearTimeout(timer);
      reject(new CancelledError("request: it was cancelled"));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", cancelled);
      resolve();
    }, 1000 * seconds);
    signal?.addEventListener("abort", cancelled);
    if (signal?.aborted) cancelled();
  });
}

/** Seconds; dates are not read. */
function retryAfter(headers: Headers): number | null {
  const value = Number(headers.get("retry-after") ?? "none");
  return Number.isFinite(value) ? Math.max(0, value) : null;
}

function checked(request: Request, response: Response): Response {
  if (response.status >= 400 && !request.accepted?.includes(response.status)) throw errorOf(response);
  return response;
}

/** What a response with a status of 400 or more says. */
function errorOf(response: Response): FheError {
  let fields: Record<string, unknown> = {};
  try {
    fields = jsonOf(response);
  } catch {
    // Not this service's words; the status says enough.
  }
  const message = oneLine(textOf(fields["error"]) ?? `the server answered with status ${response.status}`, LONGEST_MESSAGE);
  const [code, requestId] = [oneLine(textOf(fields["code"]) ?? "", 64), oneLine(response.headers.get("x-request-id") ?? "", 64)];
  const named = code === "" || code === "fhe_error" ? null : namedError(code, message);
  if (named !== null) return named;
  const text = `${message} (status ${response.status}${requestId === "" ? "" : `, request ${requestId}`})`;
  if (response.status !== 429) return new ServiceError(text, response.status, code, requestId || null);
  const error = new OverQuotaError(text, response.status, code, requestId || null);
  error.retryAfter = retryAfter(response.headers);
  return error;
}

export function jsonOf(response: Response): Record<string, unknown> {
  let value: unknown = null;
  try {
    value = JSON.parse(new TextDecoder().decode(response.body));
  } catch {
    // As something else than an object.
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new ServiceError("the server answered with something else than a JSON object; is it a cloakwork server?");
  return value as Record<string, unknown>;
}

/** A name that the server gave, as a part of a path: one that a URL would read as another path is refused. */
export function segment(name: string, what: string): string {
  if (!/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$/.test(name))
    throw new MisbehavingServerError(`${what}: expected a name of letters, digits and . _ -, got '${oneLine(name, LONGEST_NAME_SHOWN)}'`);
  return name;
}
