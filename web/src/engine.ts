// The compiled engine (fhe_core/src/wasm) and its memory. The only file that knows addresses.

import { FheError, namedError, UnsupportedError } from "./errors.js";
import { prepareSha256 } from "./sha256.js";

/** progress(done, total); false cancels. */
export type Progress = (done: number, total: number) => boolean | void;

export interface EngineOptions {
  /** The compiled engine; by default `client.wasm` beside this file. */
  wasm?: BufferSource | WebAssembly.Module;
  /** Tests only: variables that the engine reads, `CLOAKWORK_ALLOW_TOY` for insecure sets. */
  environment?: Readonly<Record<string, string>>;
}

type Call = (...values: (number | bigint)[]) => number;
type View = Uint8Array | Int8Array | Uint32Array | BigUint64Array;

const RANDOM_BYTES_AT_ONCE = 65536;
const MOST_BYTES = 2 ** 31 - 1; // of one array
const NOT_SUPPORTED = 58; // errno of WASI

/** Memory that a call needs: overwritten and given back at its end. */
export class Arena {
  readonly #engine: Engine;
  readonly #held: [number, number][] = [];

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  allocate(bytes: number): number {
    // Beyond 32 bits a size would wrap around, and the engine write past what it was given.
    const address = bytes <= MOST_BYTES ? this.#engine.raw("allocate")(bytes) >>> 0 : 0;
    if (address === 0) throw new FheError("memory: WebAssembly has no more of it; encrypt fewer samples at once, or close other keys");
    this.#held.push([address, bytes]);
    return address;
  }

  put(data: View): number {
    const address = this.allocate(data.byteLength);
    this.#engine.bytes(address, data.byteLength).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    return address;
  }

  freeLast(): void {
    const last = this.#held.pop();
    if (last !== undefined) this.#engine.raw("release")(...last);
  }

  free(): void {
    while (this.#held.length > 0) this.freeLast();
  }
}

export class Engine {
  readonly #exports: Record<string, Call>;
  readonly #memory: WebAssembly.Memory;
  #lastWords = "";

  private constructor(module: WebAssembly.Module, environment: Readonly<Record<string, string>>) {
    const instance = new WebAssembly.Instance(module, this.#imports(environment));
    this.#exports = instance.exports as unknown as Record<string, Call>;
    this.#memory = instance.exports["memory"] as WebAssembly.Memory;
    this.raw("_initialize")();
  }

  /** UnsupportedError where the platform lacks WebAssembly with vectors and exceptions, or cryptographic randomness. */
  static async load(options: EngineOptions = {}): Promise<Engine> {
    if (typeof globalThis.crypto?.getRandomValues !== "function")
      throw new UnsupportedError("randomness: expected crypto.getRandomValues, which this platform lacks; use a newer one");
    const source = options.wasm ?? (await readBeside("client.wasm"));
    let module: WebAssembly.Module;
    try {
      module = source instanceof WebAssembly.Module ? source : await WebAssembly.compile(source);
      await prepareSha256();
    } catch (error) {
      throw new UnsupportedError(
        `engine: expected a platform that compiles WebAssembly with 128-bit vectors and exceptions (${String(error).slice(0, 200)})`,
      );
    }
    return new Engine(module, options.environment ?? {});
  }

  /** How much memory the engine has; it never shrinks. */
  get memoryBytes(): number {
    return this.#memory.buffer.byteLength;
  }

  bytes(address: number, count: number): Uint8Array {
    return new Uint8Array(this.#memory.buffer, address, count);
  }

  /** A copy that outlives the arena. */
  copy(address: number, count: number): Uint8Array {
    return this.bytes(address, count).slice();
  }

  number(address: number): number {
    return new DataView(this.#memory.buffer).getUint32(address, true);
  }

  raw(name: string): Call {
    const call = this.#exports[name];
    if (call === undefined) throw new FheError(`engine: it has no '${name}'; client.wasm is of another release`);
    return call;
  }

  /** A function that gives 0, or -1 and an error. */
  call(name: string, ...values: (number | bigint)[]): void {
    let status: number;
    try {
      status = this.raw(name)(...values);
    } catch (error) {
      throw new FheError(`engine: it stopped in '${name}' (${this.#lastWords || String(error).slice(0, 200)}); load it again`);
    }
    if (status === 0) return;
    const message = this.text(this.raw("error_message")());
    throw namedError(this.text(this.raw("error_class")()), message) ?? new FheError(message);
  }

  arena<T>(work: (arena: Arena) => T): T {
    const arena = new Arena(this);
    try {
      return work(arena);
    } finally {
      arena.free();
    }
  }

  /** A text of C, up to its zero. */
  text(address: number): string {
    const memory = new Uint8Array(this.#memory.buffer);
    return new TextDecoder().decode(memory.slice(address, memory.indexOf(0, address)));
  }

  /** What the C library asks of its surroundings: randomness and variables; it has no files. */
  #imports(environment: Readonly<Record<string, string>>): WebAssembly.Imports {
    const variables = Object.entries(environment).map(([name, value]) => new TextEncoder().encode(`${name}=${value}\0`));
    const view = (): DataView => new DataView(this.#memory.buffer);
    return {
      wasi_snapshot_preview1: {
        random_get: (address: number, count: number): number => {
          try {
            for (let start = 0; start < count; start += RANDOM_BYTES_AT_ONCE)
              crypto.getRandomValues(this.bytes(address + start, Math.min(RANDOM_BYTES_AT_ONCE, count - start)) as Uint8Array<ArrayBuffer>);
            return 0;
          } catch {
            return NOT_SUPPORTED;
          }
        },
        environ_sizes_get: (count: number, bytes: number): number => {
          view().setUint32(count, variables.length, true);
          view().setUint32(
            bytes,
            variables.reduce((sum, each) => sum + each.length, 0),
            true,
          );
          return 0;
        },
        environ_get: (pointers: number, texts: number): number => {
          for (const each of variables) {
            view().setUint32(pointers, texts, true);
            this.bytes(texts, each.length).set(each);
            pointers += 4;
            texts += each.length;
          }
          return 0;
        },
        // What the C++ library says before it gives up.
        fd_write: (_file: number, parts: number, count: number, written: number): number => {
          let total = 0;
          for (let i = 0; i < count; ++i) {
            const [address, bytes] = [view().getUint32(parts + 8 * i, true), view().getUint32(parts + 8 * i + 4, true)];
            this.#lastWords += new TextDecoder().decode(this.copy(address, bytes));
            total += bytes;
          }
          this.#lastWords = this.#lastWords.slice(-200);
          view().setUint32(written, total, true);
          return 0;
        },
        fd_close: (): number => NOT_SUPPORTED,
        fd_seek: (): number => NOT_SUPPORTED,
        proc_exit: (status: number): never => {
          throw new FheError(`it ended with status ${status}`);
        },
      },
    };
  }
}

let loading: Promise<Engine> | null = null;

/** The engine that keys share unless they are given one. */
export function defaultEngine(): Promise<Engine> {
  loading ??= Engine.load().catch((error: unknown) => {
    loading = null;
    throw error;
  });
  return loading;
}

async function readBeside(name: string): Promise<BufferSource> {
  const url = new URL(name, import.meta.url);
  if (url.protocol === "file:" && typeof process !== "undefined") {
    const { readFile } = await import("node:fs/promises");
    return new Uint8Array(await readFile(url));
  }
  const response = await fetch(url);
  if (!response.ok) throw new UnsupportedError(`engine: expected ${url.pathname}, the server answered ${response.status}`);
  return response.arrayBuffer();
}
