// Numbers and errors in words.

import type { Failure } from "./messages.js";
import { FailedError } from "./scorer.js";

const BY_SERVICE_CODE: Readonly<Record<string, string>> = {
  unauthorised: "The service needs an API key, or it does not know this one.",
  forbidden: "This API key does not allow that.",
  quota_exceeded: "You have reached a limit of this service. Try again later.",
  busy: "The service is busy. Try again in a moment.",
  too_many_connections: "The service has too many visitors. Try again in a moment.",
  structured_refused: "The service does not take keys with structured secrets, which this model needs.",
  foreign_page: "The service answers only its own page. `cloakwork page` serves one from your own machine.",
  wrong_model: "The service has another version of this model now. Ask again.",
  gone: "The service has another version of this model now. Ask again.",
  unknown_model: "The service does not have this model any more. Choose another one, or reload the page to see which it has.",
  unreachable: "The service does not answer. Is it running, and are you connected?",
  untrusted: "This machine does not trust the certificate of the service. Nothing was sent.",
  plain_http: "The API key would cross the network unencrypted. Nothing was sent: the service needs https.",
  redirected: "The service tried to redirect this page to another address. Nothing was sent there.",
  storage_full: "The service has no room left for keys. Tell its operator.",
};

export function inWords(error: unknown): string {
  if (!(error instanceof FailedError)) return `The page failed: ${error instanceof Error ? error.message : String(error)}`;
  const { failure } = error;
  return BY_SERVICE_CODE[failure.serviceCode] ?? byClass(failure);
}

function byClass({ code, message }: Failure): string {
  if (code === "connection_lost") return "The service does not answer. Is it running, and are you connected?";
  if (code === "key_mismatch" && message.includes("passphrase"))
    return "The passphrase is wrong: it does not open the key that this browser keeps.";
  if (code === "changed_model")
    return "The model is not what it was when this browser first used it, and you did not accept the change. Nothing was encrypted for it.";
  if (code === "parameter_error" && message.includes("nobody agreed"))
    return "The keys that this model needs were not made: you did not agree.";
  if (code === "unsupported") return `This browser cannot do that: ${message}`;
  return `${message.charAt(0).toUpperCase()}${message.slice(1)}.`.replace(/([.?!])\.$/, "$1");
}

export function bytes(count: number): string {
  if (count < 1000) return `${count} bytes`;
  return count < 1e6 ? `${(count / 1e3).toFixed(1)} KB` : `${(count / 1e6).toFixed(1)} MB`;
}

export function seconds(value: number): string {
  if (Number.isNaN(value)) return "unknown";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  const [minutes, hours] = [Math.round(value / 60), Math.floor(value / 3600)];
  if (value < 100) return `${value.toFixed(1)} s`;
  return value < 5400 ? `${minutes} min` : `${hours} h ${Math.round((value - 3600 * hours) / 60)} min`;
}

export function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

/** Four digits at least, and no more after the point than they need. */
export function shortly(value: number): string {
  return String(Math.abs(value) >= 1000 ? Number(value.toFixed(1)) : Number(value.toPrecision(4)));
}

/** A number or a name of the service's description, which may be anything. */
export function saidOf(fact: unknown): string {
  return typeof fact === "number" || typeof fact === "string" ? String(fact).slice(0, 64) : "?";
}
