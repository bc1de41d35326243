// Encrypted predictions from a server in one call: the conversation of app/client/conversations.py.

import type { Tensor } from "./arrays.js";
import { auditFile, type AuditFile, type Exchange } from "./audit.js";
import type { ClientKey } from "./client_key.js";
import type { Given } from "./columns.js";
import { defaultEngine, type Engine } from "./engine.js";
import { type Confirm, Pins, requireKeys } from "./consent.js";
import { ConnectionLostError, FheError, MisbehavingServerError, ParameterError, ServiceError, UnsupportedError } from "./errors.js";
import { type Keys, type Store, TemporaryKeys } from "./keyring.js";
import { MOST_LIST_BYTES, MOST_SPECIFICATION_BYTES } from "./limits.js";
import { type Answer, isNumbers } from "./output_steps.js";
import { requireSecure } from "./parameters.js";
import { digestOf } from "./sha256.js";
import { ClientSpecification, type InputOptions } from "./specification.js";
import type { NamedTensors } from "./tensors.js";
import { jsonOf, type Request, type Response, segment, serverName, sleep, Transport, type TransportOptions } from "./transport.js";
import { sendKeys, UploadForgottenError } from "./upload.js";
import { hexadecimal } from "./wire.js";
import { countOf, oneLine, textOf } from "./words.js";

/** progress(what, done, total), `what` being "keys", "upload" or "server". */
export type ServiceProgress = (what: "keys" | "upload" | "server", done: number, total: number) => void;

export interface ClientOptions extends TransportOptions {
  /** Where keys are; without it, in memory and nowhere else. */
  keys?: Keys;
  /** Use the keys that all servers share, as earlier releases did, and not one for this server alone: servers can tell that it is one client. */
  shareKeys?: boolean;
  /** The URL of the service whose keys and models these are, where `url` is a relay to it on this machine. */
  service?: string;
  /** Asked before keys of more than 100 MB are made and sent, and when a model is not what it was at first use; without it both are errors. */
  confirm?: Confirm;
  /** Where is kept what models were at first use; by default beside the keys. */
  pins?: Store;
  /** Seconds that a job may take; by default a day. */
  jobTimeoutSeconds?: number;
  engine?: Engine;
  /** Make keys for models whose set has a structured secret (`.._block`) too. */
  structured?: boolean;
}

export interface ScoreOptions extends InputOptions {
  version?: string;
  progress?: ServiceProgress;
  /** Sees each batch as it leaves and its answer as it comes, both encrypted. */
  witness?: (what: "sent" | "received", ciphertexts: Uint8Array) => void;
  signal?: AbortSignal;
}

/** What scoring gave, and what it cost. */
export interface Scores {
  predictions: Answer;
  /** From encryption to decryption, without making and uploading keys. */
  seconds: number;
  /** What the server says that it computed; NaN where it does not tell. */
  computeSeconds: number;
  /** Evaluation keys sent now; 0 when the server had them. */
  uploadBytes: number;
  ciphertextBytes: number;
  resultBytes: number;
  /** What was sent and what came, for `Client.audit`. */
  exchanges: Exchange[];
}

/** A model of a server: its newest (or the asked) version and how to encrypt for it. */
export interface RemoteModel {
  name: string;
  version: string;
  specification: ClientSpecification;
  /** `parameters.fhe` of its metadata. */
  facts: Record<string, unknown>;
}

const WAIT_SECONDS = 2; // between looks at a job whose events end early
const DEFAULT_JOB_TIMEOUT_SECONDS = 24 * 3600;
const FORGOTTEN_TIMES = 3; // that keys are sent again for one call
const SHA256_DIGITS = 64;
const LONGEST_REASON = 500;
const FORGOTTEN_KEY = ["unknown_key", "key_required"];

/** Scores samples on a server that never sees them. */
export class Client {
  /** Those for this server, or the shared ones. */
  readonly keys: Keys;
  readonly #transport: Transport;
  readonly #pins: Pins | null;
  readonly #confirm: Confirm | null;
  readonly #jobTimeoutSeconds: number;
  readonly #structured: boolean;
  readonly #engine: Engine | null;
  readonly #models = new Map<string, RemoteModel>();
  readonly #uploaded = new Map<string, string>(); // the server's names of keys, by parameter set
  readonly #uploading = new Map<string, Promise<number>>();
  readonly #announced = new Set<string>(); // of all keys that were announced, complete or not: SHA-256, or the server's name

  constructor(url: string, options: ClientOptions = {}) {
    this.#transport = new Transport(url, options);
    this.#engine = options.engine ?? null;
    const keys = options.keys ?? new TemporaryKeys(this.#engine);
    const server = serverName(options.service ?? this.#transport.url);
    this.keys = options.shareKeys ? keys : keys.forServer(server);
    const store = options.pins ?? keys.store;
    this.#pins = store === null ? null : new Pins(store, server);
    this.#confirm = options.confirm ?? null;
    this.#jobTimeoutSeconds = options.jobTimeoutSeconds ?? DEFAULT_JOB_TIMEOUT_SECONDS;
    this.#structured = options.structured ?? false;
  }

  /** The names of the server's models. */
  async models(): Promise<string[]> {
    const { models } = jsonOf(await this.#ask({ method: "GET", path: "/v2/models", mostBytes: MOST_LIST_BYTES }));
    return Array.isArray(models) ? models.filter((name) => typeof name === "string") : [];
  }

  /** Asked for once: a version never changes. */
  async model(name: string, version?: string, signal?: AbortSignal): Promise<RemoteModel> {
    const place = `${name}\n${version ?? ""}`;
    let found = this.#models.get(place);
    if (found === undefined) {
      found = await this.#describe(name, version, signal);
      this.#models.set(place, found);
    }
    return found;
  }

  /** What the server says of a model's newest version (`parameters.fhe`), for lists: no specification is read, and nothing is pinned. */
  async facts(name: string, signal?: AbortSignal): Promise<Record<string, unknown>> {
    return (await this.#metadata(name, undefined, signal)).facts;
  }

  /** Takes a model that is not what it was: the next use pins it as it is then. */
  async accept(name: string): Promise<void> {
    await this.#pins?.forget(name);
    for (const place of this.#models.keys()) if (place.startsWith(`${name}\n`)) this.#models.delete(place);
  }

  async predict(name: string, x: Given, options: ScoreOptions = {}): Promise<Answer> {
    return (await this.score(name, x, options)).predictions;
  }

  /**
   * Predictions for samples [samples, ..] with what they cost; what is wrong with them is told before anything is sent. Batches beyond the
   * server's largest go in several requests.
   */
  async score(
    name: string,
    x: Given,
    { version, progress = () => undefined, witness, signal, ...warned }: ScoreOptions = {},
  ): Promise<Scores> {
    const model = await this.model(name, version, signal);
    const { specification, facts } = model;
    const { name: set, laneCount, structuredSecret } = specification.parameters;
    if (structuredSecret && !this.#structured)
      throw new ParameterError(`parameter set '${set}' has a structured secret; it is taken only when asked for: pass structured: true`);
    const inputs = specification.inputs(x, warned);
    const key = await this.keys.key(set);
    let uploadBytes = this.#uploaded.has(set) ? 0 : await this.#upload(set, progress, signal);
    const count = inputs.shape[0] as number;
    const largest = Math.min((largestBatch(facts) ?? count) * laneCount, specification.mostSamples);
    let uploadsLeft = FORGOTTEN_TIMES;
    const parts: Scores[] = [];
    const options: ScoreOptions = { ...(witness && { witness }), ...(signal && { signal }) };
    for (let start = 0; start < count; start += largest) {
      const batch = rows(inputs, start, Math.min(start + largest, count));
      try {
        parts.push(await this.#scoreBatch(key, model, batch, { progress, ...options }));
      } catch (error) {
        if (!(error instanceof ServiceError) || !FORGOTTEN_KEY.includes(error.serviceCode) || uploadsLeft-- === 0) throw error;
        // The server forgot the key since the last request (expired, deleted): send it again, once.
        this.#uploaded.delete(set);
        uploadBytes += await this.#upload(set, progress, signal);
        parts.push(await this.#scoreBatch(key, model, batch, { progress, ...options }));
      }
    }
    return { ...joined(parts), uploadBytes };
  }

  /**
   * What the server's owner needs to compute these scores once more (`cloakwork replay`): nothing of it is secret. Without `withKeys` the
   * file names the evaluation keys alone; the server has them while it keeps them.
   */
  async audit(
    name: string,
    scores: Scores,
    { version, withKeys = true }: { version?: string; withKeys?: boolean } = {},
  ): Promise<AuditFile> {
    const model = await this.model(name, version);
    const { program, parameters } = model.specification;
    const path = `/v2/keys/${segment(scores.exchanges.at(-1)?.keyName ?? "", "keys")}`;
    const answer = jsonOf(await this.#ask({ method: "GET", path }));
    const keys = { bytes: countOf(answer["bytes"]) ?? NaN, sha256: oneLine(textOf(answer["sha256"]) ?? "", SHA256_DIGITS) };
    const facts = { model: name, version: model.version, program: hexadecimal(program), service: this.#transport.url };
    return auditFile(facts, scores.exchanges, keys, withKeys ? await this.keys.storedEvaluationKeys(parameters.name) : null);
  }

  /** The server's names of the evaluation keys that this client uses. */
  get uploadedKeys(): string[] {
    return [...this.#uploaded.values()];
  }

  /** Deletes the evaluation keys that this client has uploaded, finished uploads or not; the next request uploads them again. */
  async deleteUploadedKeys(): Promise<void> {
    const listed =
      this.#announced.size === 0 ? [] : jsonOf(await this.#ask({ method: "GET", path: "/v2/keys", mostBytes: MOST_LIST_BYTES }))["keys"];
    for (const key of Array.isArray(listed) ? (listed as unknown[]) : []) {
      const { id, sha256 } = (key ?? {}) as Record<string, unknown>;
      const name = textOf(id) ?? "";
      if (this.#announced.has(textOf(sha256) ?? "") || this.#announced.has(name))
        await this.#ask({ method: "DELETE", path: `/v2/keys/${segment(name, "keys")}`, accepted: [404] });
    }
    this.#uploaded.clear();
    this.#announced.clear();
  }

  /** Overwrites secret keys in memory; those that nobody can use after this client are deleted from the server first. */
  async close(): Promise<void> {
    try {
      if (!this.keys.lasting) await this.deleteUploadedKeys();
    } catch (error) {
      if (!(error instanceof FheError)) throw error; // where the server cannot be reached they expire there
    } finally {
      this.keys.close();
    }
  }

  #ask(request: Request, signal?: AbortSignal): Promise<Response> {
    return this.#transport.exchange(request, signal);
  }

  async #describe(name: string, version: string | undefined, signal?: AbortSignal): Promise<RemoteModel> {
    const { chosen, facts } = await this.#metadata(name, version, signal);
    if (facts["kind"] === "index")
      throw new UnsupportedError(
        `model '${name}' is an index of nearest neighbours, which this client does not ask; take Python's, or 'cloakwork score'`,
      );
    if (facts["kind"] === "batch")
      throw new UnsupportedError(
        `model '${name}' is a model for batches, which this client does not ask; take Python's, or 'cloakwork score'`,
      );
    const path = `${modelPath(name, chosen)}/client`;
    const { body } = await this.#ask({ method: "GET", path, mostBytes: MOST_SPECIFICATION_BYTES }, signal);
    const specification = new ClientSpecification(new TextDecoder().decode(body), this.#engine ?? (await defaultEngine()));
    requireSecure(specification.parameters);
    largestBatch(facts);
    const offered = { program: hexadecimal(specification.program), specification: hexadecimal(await digestOf(body)) };
    await this.#pins?.require(this.#confirm, name, chosen, version === undefined, offered);
    return { name, version: chosen, specification, facts };
  }

  async #metadata(name: string, version?: string, signal?: AbortSignal): Promise<{ chosen: string; facts: Record<string, unknown> }> {
    const metadata = jsonOf(await this.#ask({ method: "GET", path: modelPath(name, version) }, signal));
    const [versions, parameters] = [metadata["versions"], metadata["parameters"] as Record<string, unknown> | null | undefined];
    const facts = parameters?.["fhe"];
    const chosen = version ?? (Array.isArray(versions) ? textOf(versions.at(-1)) : null);
    if (chosen === null || typeof facts !== "object" || facts === null)
      throw new ServiceError(`model '${name}': the server's description lacks its versions or parameters.fhe`);
    return { chosen, facts: facts as Record<string, unknown> };
  }

  // --- keys ---

  /** Bytes sent: none when the server has the keys, the rest when it has a part. One call at a time sends the keys of a set. */
  async #upload(set: string, progress: ServiceProgress, signal?: AbortSignal): Promise<number> {
    for (let other = this.#uploading.get(set); other !== undefined; other = this.#uploading.get(set)) {
      await other.catch(() => undefined);
      if (this.#uploaded.has(set)) return 0;
    }
    const sending = this.#sendAgain(set, progress, signal).finally(() => this.#uploading.delete(set));
    this.#uploading.set(set, sending);
    return sending;
  }

  /** From the beginning, once, where the server forgets what it has of an upload. */
  async #sendAgain(set: string, progress: ServiceProgress, signal?: AbortSignal): Promise<number> {
    try {
      return await this.#send(set, progress, signal);
    } catch (error) {
      if (!(error instanceof UploadForgottenError)) throw error;
      return this.#send(set, progress, signal);
    }
  }

  /** Keys that are at hand are announced with what they are, and go on where the server stands; others are sent while they are made. */
  async #send(set: string, progress: ServiceProgress, signal?: AbortSignal): Promise<number> {
    const key = await this.keys.key(set);
    const stored = await this.keys.storedEvaluationKeys(set);
    const sha256 = stored === null ? null : hexadecimal(await digestOf(stored));
    const total = key.evaluationKeysBytes;
    if (stored === null) await requireKeys(this.#confirm, set, total);
    if (sha256 !== null) this.#announced.add(sha256);
    const json = { parameter_set_digest: hexadecimal(key.parameters.digest), bytes: total, sha256 };
    const fields = jsonOf(await this.#ask({ method: "POST", path: "/v2/keys", json }, signal));
    const [id, start] = [textOf(fields["id"]) ?? "", stored === null ? 0 : (fields["offset"] ?? 0)];
    if (id === "") throw new MisbehavingServerError("keys: the server opened an upload without naming it");
    segment(id, "keys");
    if (typeof start !== "number" || !Number.isSafeInteger(start) || start < 0 || start > total)
      throw new MisbehavingServerError(`keys: expected an upload that stands at 0 to ${total} bytes; the server says something else`);
    if (stored === null) this.#announced.add(id);
    let done = { id, sent: 0 };
    if (fields["state"] !== "ready") {
      const making = (count: number, all: number): boolean => {
        progress("keys", count, all);
        return !signal?.aborted;
      };
      const parts = stored === null ? this.keys.newEvaluationKeys(set, making) : wholly(stored.subarray(start));
      const ask = (request: Request): Promise<Response> => this.#ask(request, signal);
      const uploading = (count: number, all: number): void => progress("upload", count, all);
      done = await sendKeys(ask, id, parts, [start, total], uploading, this.#transport.timeoutSeconds);
    }
    this.#uploaded.set(set, done.id);
    return done.sent;
  }

  // --- scoring ---

  async #scoreBatch(
    key: ClientKey,
    model: RemoteModel,
    batch: Tensor,
    options: ScoreOptions & { progress: ServiceProgress },
  ): Promise<Scores> {
    const { progress, witness, signal } = options;
    const start = performance.now();
    const body = model.specification.encryptInputs(key, batch);
    witness?.("sent", body);
    // The same name on every attempt: a job whose acceptance was lost is not run (and counted) twice.
    const headers = {
      "Fhe-Key-Id": this.#uploaded.get(model.specification.parameters.name) ?? "",
      "Idempotency-Key": hexadecimal(crypto.getRandomValues(new Uint8Array(16))),
    };
    const samples = batch.shape[0] as number;
    const mostBytes = model.specification.mostResultBytes(samples);
    let response = await this.#ask(
      { method: "POST", path: `${modelPath(model.name, model.version)}/infer`, headers, body, mostBytes },
      signal,
    );
    let computeSeconds = countOf(Number(response.headers.get("fhe-compute-seconds") ?? "NaN")) ?? NaN;
    if (response.status === 202)
      [response, computeSeconds] = await this.#jobResult(textOf(jsonOf(response)["id"]) ?? "", mostBytes, progress, signal);
    witness?.("received", response.body);
    model.specification.checkResult(key.engine, response.body, samples);
    const predictions = await model.specification.decrypt(key, response.body, { samples });
    const seconds = (performance.now() - start) / 1000;
    const auditKey = response.headers.get("fhe-audit-key") ?? "";
    const exchanges = [{ request: body, answer: response.body, auditKey, keyName: headers["Fhe-Key-Id"] }];
    return {
      predictions,
      seconds,
      computeSeconds,
      uploadBytes: 0,
      ciphertextBytes: body.length,
      resultBytes: response.body.length,
      exchanges,
    };
  }

  /** Follows the job's events until it has ended, then takes its result, and the seconds that it ran. */
  async #jobResult(id: string, mostBytes: number, progress: ServiceProgress, signal?: AbortSignal): Promise<[Response, number]> {
    const path = `/v2/jobs/${segment(id, "job")}`;
    const end = performance.now() + 1000 * this.#jobTimeoutSeconds;
    const onEvent = (kind: string, data: Record<string, unknown>): void => {
      const [done, total] = [countOf(data["done"]), countOf(data["total"])];
      if (kind === "progress" && done !== null && total !== null) progress("server", done, Math.max(1, total));
    };
    const left = (): number => Math.max(0, (end - performance.now()) / 1000);
    for (;;) {
      try {
        await this.#ask({ method: "GET", path: `${path}/events`, onEvent, mostSeconds: left() }, signal);
      } catch (error) {
        if (!(error instanceof ConnectionLostError)) throw error; // the job itself says how it is
      }
      const job = jsonOf(await this.#ask({ method: "GET", path }, signal));
      const state = textOf(job["state"]) ?? "";
      if (state === "done")
        return [await this.#ask({ method: "GET", path: `${path}/result`, mostBytes }, signal), countOf(job["run_seconds"]) ?? NaN];
      if (state === "failed" || state === "cancelled") throw new ServiceError(`job ${id}: ${state}: ${reasonOf(job["error"])}`);
      if (!UNDER_WAY.includes(state)) throw new MisbehavingServerError(`job ${id}: expected a state, the server says none that there is`);
      if (left() === 0)
        throw new ServiceError(
          `job ${id}: it has not ended in ${this.#jobTimeoutSeconds} s; a job that needs longer needs a larger jobTimeoutSeconds`,
        );
      await sleep(Math.min(WAIT_SECONDS, left()), signal);
    }
  }
}

const UNDER_WAY = ["queued", "running"];

function reasonOf(detail: unknown): string {
  const message = typeof detail === "object" && detail !== null ? (detail as Record<string, unknown>)["message"] : detail;
  return oneLine(textOf(message) ?? "the server gives no reason", LONGEST_REASON);
}

/** Rows of samples in one request, as the server says; null where it does not. */
function largestBatch(facts: Record<string, unknown>): number | null {
  const most = facts["largest_batch"];
  if (most === undefined || most === null) return null;
  if (typeof most !== "number" || !(most >= 1))
    throw new MisbehavingServerError("the server's description of the model: expected a largest batch of at least 1");
  return Math.floor(Math.min(most, Number.MAX_SAFE_INTEGER));
}

function modelPath(name: string, version?: string): string {
  if (/^\.{0,2}$/.test(name)) throw new ParameterError("model: expected the name of one");
  const path = `/v2/models/${encodeURIComponent(name)}`;
  return version === undefined ? path : `${path}/versions/${segment(version, "version")}`;
}

async function* wholly(object: Uint8Array): AsyncGenerator<Uint8Array, void, void> {
  yield object;
}

function rows(x: Tensor, start: number, end: number): Tensor {
  const size = x.data.length / (x.shape[0] as number);
  return { shape: [end - start, ...x.shape.slice(1)], data: x.data.subarray(start * size, end * size) };
}

function joined(parts: Scores[]): Scores {
  const sum = (name: "seconds" | "computeSeconds" | "ciphertextBytes" | "resultBytes"): number =>
    parts.reduce((total, part) => total + part[name], 0);
  return {
    predictions: joinedAnswers(parts.map((part) => part.predictions)),
    seconds: sum("seconds"),
    computeSeconds: sum("computeSeconds"),
    uploadBytes: 0,
    ciphertextBytes: sum("ciphertextBytes"),
    resultBytes: sum("resultBytes"),
    exchanges: parts.flatMap((part) => part.exchanges),
  };
}

function joinedAnswers(answers: Answer[]): Answer {
  const first = answers[0] as Answer;
  if (answers.length === 1) return first;
  if (Array.isArray(first)) return (answers as unknown[][]).flat() as Answer;
  if (isNumbers(first)) return joinedTensors(answers as Tensor[]);
  const byName = answers as NamedTensors[];
  return Object.fromEntries(Object.keys(first).map((name) => [name, joinedTensors(byName.map((each) => each[name] as Tensor))]));
}

function joinedTensors(tensors: Tensor[]): Tensor {
  const data = new Float64Array(tensors.reduce((total, each) => total + each.data.length, 0));
  let offset = 0;
  for (const each of tensors) {
    data.set(each.data, offset);
    offset += each.data.length;
  }
  const count = tensors.reduce((total, each) => total + (each.shape[0] as number), 0);
  return { shape: [count, ...(tensors[0] as Tensor).shape.slice(1)], data };
}
