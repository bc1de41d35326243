// Numbers and errors in words.

import type { Failure } from "./messages.js";
import { FailedError } from "./scorer.js";

const BY_SERVICE_CODE: Readonly<Record<string, string>> = {
  unauthorised: "The service asks for an API key, or does not know this one.",
  forbidden: "This API key may not do that.",
  quota_exceeded: "You are over a limit of this service. Try later.",
  busy: "The service is busy. Try again in a moment.",
  too_many_connections: "The service has too many visitors. Try again in a moment.",
  structured_keys_refused: "The service does not take keys with structured secrets, which this model needs.",
  storage_full: "The service has no room left for keys.",
};

export function inWords(error: unknown): string {
  if (!(error instanceof FailedError)) return `The page failed: ${error instanceof Error ? error.message : String(error)}`;
  const { failure } = error;
  return BY_SERVICE_CODE[failure.serviceCode] ?? byClass(failure);
}

function byClass({ name, code, message }: Failure): string {
  if (code === "connection_lost") return "The service does not answer. Is it running, and are you connected?";
  if (code === "key_mismatch" && message.includes("passphrase"))
    return "The passphrase is wrong: it does not open the key that this browser keeps.";
  if (message.includes("structured secret")) return "This model needs keys with a structured secret, which this page does not make.";
  if (code === "unsupported") return `This browser cannot do that: ${message}`;
  return `${name}: ${message}`;
}

export function bytes(count: number): string {
  if (count < 1000) return `${count} bytes`;
  return count < 1e6 ? `${(count / 1e3).toFixed(1)} KB` : `${(count / 1e6).toFixed(1)} MB`;
}

export function seconds(value: number): string {
  if (Number.isNaN(value)) return "not told";
  return value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(1)} s`;
}
