// What the page and its worker say to each other: one request at a time has an answer, and may have news before it.

import type { AuditFile } from "../src/audit.js";
import type { FheError, ServiceError } from "../src/errors.js";
import type { ConsentQuestion, Expected, Given } from "../src/index.js";

export interface Access {
  apiKey?: string;
  /** Keeps keys in this browser, encrypted under it; without one they end with the page. */
  passphrase?: string;
}

/** What is no list of numbers: rows with categories, a text, several inputs by name. */
export interface WholeSample {
  x: Given;
}

export type Question =
  /** `service`: whose page it is, where another program passes it on. */
  | { kind: "open"; url: string; service?: string; access: Access }
  | { kind: "describe"; model: string }
  /** What the server says of a model, for the list. */
  | { kind: "facts"; model: string }
  /** `structured`: the person has agreed to keys of a set with a structured secret. */
  | { kind: "score"; model: string; numbers: number[] | WholeSample; structured: boolean }
  /** Of the last answer. */
  | { kind: "audit"; withKeys: boolean }
  | { kind: "close" };

export interface Description {
  inputShape: number[];
  expected: Expected;
  /** Of each score of a classifier. */
  labels: string[];
  /** Whether its keys have a structured secret, which a person is asked for first. */
  structuredSecret: boolean;
  facts: Record<string, unknown>;
}

/** One sample's answer, with what it took. */
export interface Scored {
  label: string | null;
  /** By output; probabilities where the model has them. */
  scores: number[];
  /** What counts as the end of a calibrated range. */
  warnings: string[];
  sent: Uint8Array;
  receivedBytes: number;
  uploadBytes: number;
  seconds: number;
  computeSeconds: number;
  /** The server's names of keys that nobody can use after this page. */
  temporaryKeys: string[];
}

/** "waits": until another tab has sent the keys; "again": an upload of keys that the server had and has lost. */
export type Step = "waits" | "keys" | "upload" | "again" | "encrypted" | "server";

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
  facts: Record<string, unknown>;
  score: Scored;
  audit: AuditFile;
  close: null;
}

export type Reply = ({ id: number } & ({ news: News } | { answer: unknown } | { failure: Failure })) | Asked;

/** What a person is asked before the worker goes on; the page says what was decided under the same number. */
export interface Asked {
  consent: number;
  request: ConsentQuestion;
}

export interface Decision {
  consent: number;
  agreed: boolean;
}

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
