// What the page and its worker say to each other: one request at a time has an answer, and may have news before it.

import type { FheError, ServiceError } from "../src/errors.js";

export interface Access {
  apiKey?: string;
  /** Keeps keys in this browser, encrypted under it; without one they end with the page. */
  passphrase?: string;
}

export type Question =
  | { kind: "open"; url: string; access: Access }
  | { kind: "describe"; model: string }
  | { kind: "score"; model: string; numbers: number[] }
  | { kind: "close" };

export interface Description {
  inputShape: number[];
  facts: Record<string, unknown>;
}

/** One sample's answer, with what it took. */
export interface Scored {
  label: string | null;
  /** By output; probabilities where the model has them. */
  scores: number[];
  sent: Uint8Array;
  receivedBytes: number;
  uploadBytes: number;
  seconds: number;
  computeSeconds: number;
  /** The server's names of keys that nobody can use after this page. */
  temporaryKeys: string[];
}

export type Step = "keys" | "upload" | "encrypted" | "server";

export interface News {
  step: Step;
  done: number;
  total: number;
  /** The ciphertexts, when they are on their way. */
  sent?: Uint8Array;
}

export interface Failure {
  name: string;
  code: string;
  serviceCode: string;
  status: number | null;
  message: string;
}

export interface Answers {
  open: string[];
  describe: Description;
  score: Scored;
  close: null;
}

export type Reply = { id: number } & ({ news: News } | { answer: unknown } | { failure: Failure });

export function failureOf(error: unknown): Failure {
  const known = error as Partial<FheError & ServiceError>;
  return {
    name: String(known.name ?? "Error"),
    code: String(known.code ?? ""),
    serviceCode: String(known.serviceCode ?? ""),
    status: known.status ?? null,
    message: String(known.message ?? error).slice(0, 500),
  };
}
