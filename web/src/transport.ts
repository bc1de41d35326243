// Requests over HTTP, sent again where that is safe: app/client/transport.py.

import { CancelledError, ConnectionLostError, type FheError, namedError, OverQuotaError, ParameterError, ServiceError } from "./errors.js";

export interface Request {
  method: string;
  path: string;
  /** Sending it twice does what sending it once does, so that it is sent again when no answer came. */
  repeatable?: boolean;
  headers?: Record<string, string>;
  body?: Uint8Array;
  json?: unknown;
  /** Read the answer as server-sent events. */
  onEvent?: (kind: string, data: Record<string, unknown>) => void;
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
  /** For the tests. */
  fetch?: typeof fetch | undefined;
}

const ATTEMPTS = 5;
const FIRST_PAUSE_SECONDS = 0.25;
const LONGEST_PAUSE_SECONDS = 30;
const PASSING = [429, 502, 503, 504]; // may be others a moment later; the request was not carried out
const LONGEST_MESSAGE = 500;
const LARGEST_EVENT = 2 ** 20;

export class Transport {
  readonly url: string;
  readonly #headers: Record<string, string>;
  readonly #fetch: typeof fetch;

  /** ParameterError: a URL that is none, or an API key over plain http to another machine. */
  constructor(url: string, { apiKey, allowPlainHttp = false, fetch: own }: TransportOptions) {
    this.url = checkedUrl(url, apiKey !== undefined, allowPlainHttp);
    this.#headers = apiKey === undefined ? {} : { Authorization: `Bearer ${apiKey}` };
    this.#fetch = own ?? ((...values) => fetch(...values));
  }

  /** The answer; ServiceError and the like for statuses of 400 and more. `signal` cancels. */
  async exchange(request: Request, signal?: AbortSignal): Promise<Response> {
    for (let attempt = 0; ; ++attempt) {
      let response: Response | null = null;
      try {
        response = await this.#once(request, signal);
      } catch (error) {
        if (signal?.aborted) throw new CancelledError("request: it was cancelled");
        if (!(error instanceof ConnectionLostError) || !mayRepeat(request, attempt)) throw error;
      }
      if (response !== null) {
        const passing = PASSING.includes(response.status) && !request.accepted?.includes(response.status);
        if (!passing || !mayRepeat(request, attempt)) return checked(request, response);
      }
      await sleep(pause(attempt, response), signal);
    }
  }

  async #once(request: Request, signal?: AbortSignal): Promise<Response> {
    const headers: Record<string, string> = { ...this.#headers, ...request.headers };
    let body: BodyInit | undefined;
    if (request.json !== undefined) {
      headers["Content-Type"] = "application/json";
      body = JSON.stringify(request.json);
    } else if (request.body !== undefined) {
      headers["Content-Type"] = "application/octet-stream";
      body = request.body as BodyInit;
    }
    try {
      const init: RequestInit = { method: request.method, headers, credentials: "omit", cache: "no-store", redirect: "error" };
      if (body !== undefined) init.body = body;
      if (signal !== undefined) init.signal = signal;
      const answer = await this.#fetch(this.url + request.path, init);
      if (request.onEvent !== undefined && answer.ok && answer.body !== null) {
        await readEvents(answer.body, request.onEvent);
        return { status: answer.status, headers: answer.headers, body: new Uint8Array() };
      }
      return { status: answer.status, headers: answer.headers, body: new Uint8Array(await answer.arrayBuffer()) };
    } catch (error) {
      const reason = error instanceof Error ? error.name : "unknown";
      throw new ConnectionLostError(`${this.url}: no answer (${reason}); is the server running there?`);
    }
  }
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

function mayRepeat(request: Request, attempt: number): boolean {
  return attempt + 1 < ATTEMPTS && request.repeatable !== false;
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
  const message = String(fields["error"] ?? `the server answered with status ${response.status}`).slice(0, LONGEST_MESSAGE);
  const [code, requestId] = [String(fields["code"] ?? ""), response.headers.get("x-request-id")];
  const own = code === "" || code === "fhe_error" ? null : namedError(code, message);
  if (own !== null) return own;
  const text = `${message} (status ${response.status}${requestId === null ? "" : `, request ${requestId}`})`;
  if (response.status !== 429) return new ServiceError(text, response.status, code, requestId);
  const error = new OverQuotaError(text, response.status, code, requestId);
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

/** Server-sent events (WHATWG HTML, section 9.2), with data in JSON. */
async function readEvents(stream: ReadableStream<Uint8Array>, onEvent: NonNullable<Request["onEvent"]>): Promise<void> {
  const decoder = new TextDecoder();
  const reader = stream.getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += decoder.decode(part.value, { stream: true });
    if (text.length > LARGEST_EVENT) throw new Error("EventTooLarge");
    const events = text.split(/\r?\n\r?\n/);
    text = events.pop() as string;
    for (const event of events) dispatch(event, onEvent);
  }
}

function dispatch(event: string, onEvent: NonNullable<Request["onEvent"]>): void {
  let [kind, data] = ["message", ""];
  for (const line of event.split(/\r?\n/)) {
    const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line) as RegExpExecArray;
    if (field === "event") kind = value as string;
    if (field === "data") data += (data === "" ? "" : "\n") + (value as string);
  }
  let found: unknown = null;
  try {
    found = JSON.parse(data);
  } catch {
    return; // a comment, or an event without data
  }
  if (typeof found === "object" && found !== null) onEvent(kind, found as Record<string, unknown>);
}
