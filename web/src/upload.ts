// Evaluation keys on their way to a server, while they are made or from an object: parts in order, each kept until the server has it.

import { ConnectionLostError, MisbehavingServerError, ServiceError } from "./errors.js";
import { jsonOf, type Request, type Response, segment, sleep } from "./transport.js";

export type Ask = (request: Request) => Promise<Response>;

const PART_BYTES = 4 << 20; // in one request; twice that is held
const LOST_PARTS = 8; // interrupted requests of one part before giving up
const BUSY = ["conflict", "wrong_offset"]; // the server has not noticed yet that a connection is gone
const BUSY_SECONDS = 0.25;
const BUSY_TRIES = 240; // a minute: large keys are checked meanwhile
const SHORT_ANSWERS = 8; // that leave a rest of one part, or the check, before giving up

/** What a server says about keys. */
interface Standing {
  id: string;
  offset: number;
  ready: boolean;
}

/** The bytes that the server lacks are not here any more: it forgot the upload, or a part of it. */
export class UploadForgottenError extends ServiceError {}

/**
 * Sends the parts from `start` on of an object of `total` bytes; one part is on its way while the next is made. Gives the server's name of the
 * keys, which is another one where it had the same keys already, and the bytes sent.
 */
export async function sendKeys(
  ask: Ask,
  id: string,
  parts: AsyncIterable<Uint8Array>,
  [start, total]: [number, number],
  progress: (done: number, total: number) => void,
  patienceSeconds = Infinity,
): Promise<{ id: string; sent: number }> {
  const upload = { ask, path: `/v2/keys/${segment(id, "keys")}`, total, patienceSeconds };
  let [offset, sent] = [start, 0];
  let standing: Standing = { id, offset, ready: false };
  let underWay: Promise<void> = Promise.resolve();
  if (start > 0) progress(start, total);
  for await (const part of gathered(parts, PART_BYTES)) {
    await underWay;
    const from = offset;
    offset += part.length;
    underWay = sendPart(upload, part, from).then((done) => {
      standing = done.standing;
      sent += done.sent;
      progress(from + part.length, total);
    });
    underWay.catch(() => undefined); // seen where it is awaited
  }
  await underWay;
  // All was there, but for its check.
  if (!standing.ready && offset === total) standing = (await sendPart(upload, new Uint8Array(), total)).standing;
  if (!standing.ready) throw new ServiceError(`keys: expected an upload of ${total} bytes, the server stands at ${standing.offset}`);
  return { id: standing.id, sent };
}

interface Upload {
  ask: Ask;
  path: string;
  total: number;
  /** For one part, interrupted or not. */
  patienceSeconds: number;
}

/** Until the server has the part, and after the last one has checked the whole; where a connection is lost it says how far it got. */
async function sendPart(
  { ask, path, total, patienceSeconds }: Upload,
  part: Uint8Array,
  start: number,
): Promise<{ standing: Standing; sent: number }> {
  const giveUp = performance.now() + 1000 * patienceSeconds;
  const end = start + part.length;
  const complete = ({ offset, ready }: Standing): boolean => ready || (end < total && offset === end);
  let [standing, sent]: [Standing, number] = [{ id: "", offset: start, ready: false }, 0];
  for (let [lost, waited, short] = [0, 0, 0]; !complete(standing);) {
    const body = part.subarray(standing.offset - start); // empty: all is there but for the check
    const headers = { "Upload-Offset": String(standing.offset) };
    try {
      standing = standingOf(await ask({ method: "PATCH", path, repeatable: false, headers, body }));
      sent += body.length;
      if (!complete(standing) && ++short > SHORT_ANSWERS)
        throw new MisbehavingServerError(
          `keys: the server took ${short} parts and stands at ${standing.offset} bytes of ${end}; the upload gets no further`,
        );
    } catch (error) {
      const busy = error instanceof ServiceError && BUSY.includes(error.serviceCode);
      if (error instanceof ServiceError && error.serviceCode === "unknown_key") throw new UploadForgottenError(error.message, error.status);
      const again = busy ? ++waited <= BUSY_TRIES : error instanceof ConnectionLostError && ++lost <= LOST_PARTS;
      if (!again || performance.now() > giveUp) throw error;
      if (busy) await sleep(BUSY_SECONDS);
      standing = standingOf(await ask({ method: "GET", path }));
    }
    if (standing.offset < start || standing.offset > end)
      throw new UploadForgottenError(
        `keys: the server stands at ${standing.offset} bytes, expected ${start} to ${end}; they are sent anew`,
      );
  }
  return { standing, sent };
}

function standingOf(response: Response): Standing {
  const { id, offset, state } = jsonOf(response);
  if (typeof id !== "string" || id === "" || !Number.isSafeInteger(offset))
    throw new MisbehavingServerError("keys: the server's answer lacks the name or the offset of the upload");
  return { id, offset: offset as number, ready: state === "ready" };
}

/** The same bytes in parts of one size, but for the last. */
async function* gathered(parts: AsyncIterable<Uint8Array>, size: number): AsyncGenerator<Uint8Array, void, void> {
  let [held, count] = [new Uint8Array(size), 0];
  for await (let part of parts) {
    while (part.length > 0) {
      const taken = part.subarray(0, size - count);
      held.set(taken, count);
      count += taken.length;
      part = part.subarray(taken.length);
      if (count === size) {
        yield held;
        [held, count] = [new Uint8Array(size), 0]; // the other one is on its way
      }
    }
  }
  if (count > 0) yield held.subarray(0, count);
}
