// SHA-256 of what comes in parts, or cannot be waited for, by hash-wasm; of a whole object that can, by the platform.

import { createSHA256, type IHasher } from "hash-wasm";

let hasher: IHasher | null = null;

/** What `sha256` needs; `Engine.load` waits for it. */
export async function prepareSha256(): Promise<void> {
  hasher ??= await createSHA256();
}

export function sha256(data: Uint8Array): Uint8Array {
  if (hasher === null) throw new Error("sha256: Engine.load comes first");
  return hasher.init().update(data).digest("binary");
}

/** One that takes parts: `update`, then `digest("binary")`. */
export function incrementalSha256(): Promise<IHasher> {
  return createSHA256();
}

/** Of much at once: the platform's own, where a page may have it. */
export async function digestOf(data: Uint8Array): Promise<Uint8Array> {
  if (globalThis.crypto?.subtle === undefined) return sha256(data);
  return new Uint8Array(await crypto.subtle.digest("SHA-256", data as BufferSource));
}
