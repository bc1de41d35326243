// The administrator's routes. The API key is in this object and nowhere else: what a browser stores outlives the page, and every script of the
// origin reads it.

const PATIENCE_MS = 15_000;
const LOADING_MS = 600_000; // a model that is loaded may be compiled first

/** What the service refused, in its words. */
export class RefusedError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    text: string,
  ) {
    super(text);
  }
}

export class Service {
  #apiKey = "";

  /** Without one, what a service on this machine alone (`insecure_local`) answers. */
  use(apiKey: string): void {
    this.#apiKey = apiKey;
  }

  async get<T>(path: string, query: Record<string, string> = {}): Promise<T> {
    const given = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== ""));
    return (await (await this.#ask("GET", `${path}?${given}`, PATIENCE_MS)).json()) as T;
  }

  /** `parts` of the path are names and identifiers. */
  async change(method: "POST" | "DELETE" | "PATCH", parts: string[], body?: unknown): Promise<void> {
    const loads = parts.at(-1) === "load";
    await this.#ask(method, parts.map(encodeURIComponent).join("/"), loads ? LOADING_MS : PATIENCE_MS, body);
  }

  async #ask(method: string, path: string, patienceMs: number, body?: unknown): Promise<Response> {
    const headers: Record<string, string> = {};
    if (this.#apiKey !== "") headers["Authorization"] = `Bearer ${this.#apiKey}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const answer = await fetch(`/v2/admin/${path}`, {
      method,
      headers,
      cache: "no-store",
      credentials: "omit",
      signal: AbortSignal.timeout(patienceMs),
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    if (answer.ok) return answer;
    const refusal = (await answer.json().catch(() => ({}))) as { error?: string; code?: string };
    throw new RefusedError(answer.status, refusal.code ?? "", refusal.error ?? `the service answered ${answer.status}`);
  }
}
