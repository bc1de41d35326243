// The error tree of the engine: the classes of fhe_core/errors.py, with the same `code`. A message never has key bytes or plaintexts.

import { MOST_MESSAGE_CHARACTERS } from "./limits.js";
import { oneLine } from "./words.js";

/** Every error that this module raises on purpose. Its message is one line, whoever's words are in it. */
export class FheError extends Error {
  readonly code: string = "fhe_error";

  constructor(message: string) {
    super(oneLine(message, MOST_MESSAGE_CHARACTERS));
  }

  override get name(): string {
    return this.constructor.name;
  }
}

/** A value outside its domain, or a parameter set that does not exist or does not fit. */
export class ParameterError extends FheError {
  override readonly code: string = "parameter_error";
}

/** An array of the wrong shape. */
export class ShapeError extends FheError {
  override readonly code: string = "shape_error";
}

/** Objects that belong to different keys, parameter sets or programs; a wrong passphrase. */
export class KeyMismatchError extends FheError {
  override readonly code: string = "key_mismatch";
}

/** Bytes that are not a valid object of the wire format. */
export class SerializationError extends FheError {
  override readonly code: string = "serialization_error";
}

/** Something that this client, or this platform, does not do. */
export class UnsupportedError extends FheError {
  override readonly code: string = "unsupported";
}

/** A long call was stopped by its progress callback. */
export class CancelledError extends FheError {
  override readonly code: string = "cancelled";
}

/** The server refused a request, or could not be reached. */
export class ServiceError extends FheError {
  override readonly code: string = "service_error";
  /** Of HTTP; null without an answer. */
  readonly status: number | null;
  /** The server's name of the error (docs/howto/service.md). */
  readonly serviceCode: string;
  readonly requestId: string | null;

  constructor(message: string, status: number | null = null, serviceCode = "", requestId: string | null = null) {
    super(message);
    this.status = status;
    this.serviceCode = serviceCode;
    this.requestId = requestId;
  }
}

/** The server says something that no service of this kind says: too much, too slowly, in an encoding, or without an end. Nothing is sent again. */
export class MisbehavingServerError extends ServiceError {
  override readonly code: string = "misbehaving_server";
}

/** A server shows another program, or other steps, under the name of a model that was used before; nothing was encrypted for it. */
export class ChangedModelError extends ServiceError {
  override readonly code: string = "changed_model";
}

/** No answer, or half of one; whether the request was carried out is not known. */
export class ConnectionLostError extends ServiceError {
  override readonly code: string = "connection_lost";
}

/** Quota or queue full; `retryAfter` seconds later there may be room. */
export class OverQuotaError extends ServiceError {
  override readonly code: string = "over_quota";
  retryAfter: number | null = null;
}

const CLASSES: Readonly<Record<string, new (message: string) => FheError>> = {
  FheError,
  ParameterError,
  ShapeError,
  KeyMismatchError,
  SerializationError,
  UnsupportedError,
  CancelledError,
};

/** The error that the engine, or the service, calls by this class's name or code; null for other names. */
export function namedError(name: string, message: string): FheError | null {
  for (const [title, kind] of Object.entries(CLASSES)) {
    const error = new kind(message);
    if (title === name || error.code === name) return error;
  }
  return null;
}
