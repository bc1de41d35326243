// The list of models: titles that say what a model is for, how often it is right and how long an answer takes.

import { made } from "./elements.js";
import { titleOf } from "./forms.js";
import samples from "./samples.json" with { type: "json" };
import type { Scorer } from "./scorer.js";
import { percent, saidOf, seconds } from "./words.js";

/** Of the zoo's programs, by the first digits of their digests: the share of held-out samples that the encrypted model gets right. */
const ACCURACY: Readonly<Record<string, { share: number; samples: number } | undefined>> = samples.accuracy;
const DIGITS = 16; // of a digest
/** Kinds of models that this page cannot ask. */
const NOT_HERE: Readonly<Record<string, string | undefined>> = { index: "nearest neighbours", batch: "for batches" };

type Facts = Record<string, unknown>;

export function fill(list: HTMLSelectElement, names: readonly string[]): void {
  list.replaceChildren(...names.map((name) => made("option", { value: name, textContent: titleOf(name) })));
}

/** Adds what the service says of each model, one after the other; a model that it says nothing of keeps its title. */
export async function complete(list: HTMLSelectElement, scorer: Scorer): Promise<void> {
  for (const option of [...list.options]) {
    if (!option.isConnected) return; // the list was filled anew
    const facts = await scorer.ask({ kind: "facts", model: option.value }).catch(() => null);
    if (facts !== null) describe(option, facts);
  }
}

function describe(option: HTMLOptionElement, facts: Facts): void {
  const kind = NOT_HERE[saidOf(facts["kind"])];
  if (kind !== undefined) {
    option.disabled = !option.selected;
    option.textContent = `${option.value} (${kind}: only the Python client can ask it)`;
    return;
  }
  const [accuracy, original, estimate] = [accuracyOf(facts), originalOf(facts), estimateOf(facts)];
  const right = accuracy === undefined ? original?.short : `${percent(accuracy.share)} right`;
  const known = [right, estimate !== null && `about ${seconds(estimate)}`].filter(Boolean);
  const title = titleOf(option.value);
  option.textContent =
    title === option.value ? [title, ...known].join(", ") : `${title.split(" (")[0]} ${known.join(", ")} (${option.value})`;
}

/** The same in sentences, for the model that is chosen. */
export function about(facts: Facts): string {
  const [accuracy, estimate] = [accuracyOf(facts), estimateOf(facts)];
  const basis = facts["estimate_is_measured"] === true ? "measured on this server" : "a forecast; nobody has asked yet";
  return [
    accuracy === undefined
      ? (originalOf(facts)?.sentence ?? "The service does not say how accurate this model is.")
      : `Right for ${percent(accuracy.share)} of ${accuracy.samples.toLocaleString("en-US")} samples that it was not trained on.`,
    ...(estimate === null ? [] : [`The server computes for about ${seconds(estimate)} (${basis}).`]),
    `Security: ${saidOf(facts["security_bits"])} bits, with parameter set ${saidOf(facts["parameter_set"])}.`,
  ].join(" ");
}

function accuracyOf(facts: Facts): { share: number; samples: number } | undefined {
  return ACCURACY[saidOf(facts["program_digest"]).slice(0, DIGITS)];
}

/** How the encrypted model answers as the one that it was compiled from, which its file says. */
function originalOf(facts: Facts): { short: string; sentence: string } | undefined {
  const original = (facts["report"] as Facts | undefined)?.["original"] as Facts | undefined;
  const [told, value, samples] = [original?.["told"], original?.["value"], original?.["samples"]];
  if (typeof value !== "number" || typeof samples !== "number") return undefined;
  const count = samples.toLocaleString("en-US");
  if (told !== "labels")
    return { short: "", sentence: `Its values differ from the original model's by ${percent(1 - value)} (${count} samples).` };
  return {
    short: `${percent(value)} as the original`,
    sentence: `It answers as the original model for ${percent(value)} of ${count} samples.`,
  };
}

function estimateOf({ estimated_seconds: estimate }: Facts): number | null {
  return typeof estimate === "number" && Number.isFinite(estimate) ? estimate : null;
}
