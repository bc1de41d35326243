// The page: asks the worker, and shows what comes.

import { hideAudit, offerAudit } from "./audit.js";
import { agreedInDialog, confirmed } from "./consent.js";
import { found, reveal } from "./elements.js";
import { formOf } from "./forms.js";
import type { Access, Description, News } from "./messages.js";
import { type Form, Missing } from "./missing.js";
import { about, complete, fill } from "./model_list.js";
import { weakness } from "./passphrases.js";
import { FailedError, Scorer } from "./scorer.js";
import { sayWhoServed } from "./served.js";
import { hideShown, showAnswer, showCiphertext, showWarnings } from "./shown.js";
import { bytes, inWords } from "./words.js";

const FIRST = "mnist-mlp-1x30"; // the model that is shown first, where the service has it
const PAUSE_MS = 2000; // between looks for models
const LONG_FORM = 12; // fields; a form with more has the whole width
const CHANGED = ["wrong_model", "gone", "unknown_model"]; // what is known of the service's models is old
const READY = "Ready.";
const STEPS: Readonly<Record<News["step"], string>> = {
  waits: "Another tab makes the keys and sends them. This one waits",
  keys: "Making keys in this browser",
  upload: "Sending the evaluation keys",
  again: "The service does not have the keys any more. Sending them again",
  encrypted: "Encrypted and sent. The server computes",
  server: "The server computes",
};

const status = found("status", HTMLParagraphElement);
const problem = found("error", HTMLParagraphElement);
const inputs = found("inputs", HTMLDivElement);
const models = found("model", HTMLSelectElement);
const ask = found("ask", HTMLButtonElement);
const access = found("access", HTMLFormElement);
const apiKey = found("api-key", HTMLInputElement);
const passphrase = found("passphrase", HTMLInputElement);
const consent = found("consent", HTMLInputElement);

const scorer = new Scorer(new URL("worker.js", import.meta.url), confirmed);
let opened = ""; // the access that the worker's session has
let temporaryKeys: string[] = [];
const accepted = new Set<string>(); // weak passphrases that the person wants
let attempts = 0; // that were begun
let choices = 0; // of models, also of the same one again
let shown: { model: string; form: Form; description: Description } | null = null;

function wantedAccess(): Access {
  return { ...(apiKey.value !== "" && { apiKey: apiKey.value }), ...(passphrase.value !== "" && { passphrase: passphrase.value }) };
}

/** The names of the models, asked for with the API key and passphrase as they are now. */
async function open(): Promise<string[]> {
  const wanted = wantedAccess();
  opened = "";
  const { service } = document.documentElement.dataset;
  const names = await scorer.ask({ kind: "open", url: location.origin, ...(service !== undefined && { service }), access: wanted });
  opened = JSON.stringify(wanted);
  return names;
}

/** Runs what a person asked for; says so when it fails. */
async function attempt(work: () => Promise<void>): Promise<void> {
  const mine = ++attempts;
  forgive();
  ask.disabled = true;
  try {
    await work();
  } catch (error) {
    if (error instanceof FailedError && error.failure.serviceCode === "unauthorised") {
      access.hidden = false;
      apiKey.focus();
    }
    if (error instanceof FailedError && CHANGED.includes(error.failure.serviceCode)) opened = ""; // the next question asks anew
    if (mine !== attempts) return; // the person has gone on to something else
    status.textContent = "No answer.";
    say(inWords(error));
    if (access.hidden) reveal(problem);
  } finally {
    if (mine === attempts) {
      found("work", HTMLDivElement).hidden = true;
      ask.disabled = shown === null; // a later one enables it itself
      inputs.inert = false;
    }
  }
}

/** Puts what went wrong at the field that it is about, before the button that led to it, or below the status. */
function say(text: string, field: HTMLElement | null = null, place: Element | null = null): void {
  problem.textContent = text;
  if (field !== null) {
    field.closest("details")?.setAttribute("open", "");
    (field.closest("label") ?? field).after(problem);
    field.setAttribute("aria-invalid", "true");
    field.setAttribute("aria-describedby", problem.id);
  } else if (place !== null) place.before(problem);
  else status.after(problem);
  problem.hidden = false;
}

function forgive(): void {
  problem.hidden = true;
  status.after(problem); // out of a form that may be replaced
  for (const field of document.querySelectorAll("[aria-invalid]")) {
    field.removeAttribute("aria-invalid");
    field.removeAttribute("aria-describedby");
  }
}

/** What is shown belongs to the sample that was sent. */
function clear(): void {
  forgive();
  hideShown();
  hideAudit();
  if (shown !== null && status.textContent !== READY) status.textContent = READY;
}

/** A service that has just started compiles its models first. */
async function preparedModels(): Promise<string[]> {
  for (;;) {
    const names = await open();
    access.hidden = true;
    if (names.length > 0) return names;
    status.textContent = "The service has no models yet. This page asks again.";
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

async function listModels(): Promise<void> {
  const names = await preparedModels();
  fill(models, names);
  models.disabled = false;
  models.value = names.includes(FIRST) ? FIRST : (names[0] as string);
  try {
    await choose();
  } finally {
    void complete(models, scorer); // after what the person waits for
  }
}

async function choose(): Promise<void> {
  const model = models.value;
  const mine = ++choices;
  shown = null;
  inputs.inert = false;
  clear();
  status.textContent = "Loading the model";
  const description = await scorer.ask({ kind: "describe", model });
  if (mine !== choices) return; // chosen again meanwhile, whose form is filled in
  const form = formOf(model, description);
  inputs.replaceChildren(form.element);
  document.body.classList.toggle("long", form.element.querySelectorAll(".field").length > LONG_FORM);
  found("about", HTMLParagraphElement).textContent = about(description.facts);
  found("structured", HTMLFieldSetElement).hidden = !description.structuredSecret;
  consent.checked = false;
  shown = { model, form, description };
  status.textContent = READY;
}

/** Nothing is sent before the person has changed something. */
function refuse(reason: string, field: HTMLElement | null = null): void {
  status.textContent = "Nothing was sent.";
  say(reason, field, ask);
  reveal(field ?? problem);
}

async function score(): Promise<void> {
  if (shown === null) return;
  const { model, form, description } = shown;
  const mine = attempts;
  const numbers = form.numbers();
  if (numbers instanceof Missing) return refuse(numbers.text, numbers.field);
  const doubts = form.doubts?.() ?? [];
  const structured = description.structuredSecret && consent.checked;
  if (description.structuredSecret && !structured)
    return refuse(
      "This model needs keys with a structured secret. Read what that means and agree to it, or choose another model.",
      consent,
    );
  if (!(await passphraseStands()))
    return refuse("Choose another passphrase, or leave it empty: then the secret key ends with this page.", passphrase);
  clear();
  inputs.inert = true; // an answer is about what is shown
  status.textContent = "Opening the key";
  status.scrollIntoView({ block: "nearest" });
  if (opened !== JSON.stringify(wantedAccess())) await open();
  const answer = await scorer.ask({ kind: "score", model, numbers, structured }, (news) => mine === attempts && report(news));
  temporaryKeys = answer.temporaryKeys;
  if (mine !== attempts) return; // another model was chosen meanwhile
  showAnswer(answer, form, description.facts);
  showWarnings([...doubts, ...answer.warnings]);
  offerAudit(scorer, description.facts);
  status.textContent = `Answered: ${found("label", HTMLElement).textContent}.`;
  reveal(found("answer", HTMLDivElement));
}

/** Whether it is strong, or the person wants it all the same. */
async function passphraseStands(): Promise<boolean> {
  const word = passphrase.value;
  const reason = word === "" || accepted.has(word) ? null : weakness(word);
  if (reason === null) return true;
  const text =
    `This passphrase protects the secret key in this browser, and ${reason}. Anybody who gets this browser's files can guess it. ` +
    "Four or more words that have nothing to do with each other are hard to guess.";
  if (!(await agreedInDialog({ text, agree: "Use it all the same", refuse: "Choose another one" }))) return false;
  accepted.add(word);
  return true;
}

/** A new step is read aloud; its progress is not. */
function report({ step, done, total, sent }: News): void {
  if (sent !== undefined) showCiphertext(sent);
  if (status.textContent !== STEPS[step]) status.textContent = STEPS[step];
  const bar = found("progress", HTMLProgressElement);
  found("work", HTMLDivElement).hidden = false;
  if (step === "encrypted" || step === "waits") bar.removeAttribute("value");
  else bar.value = done / Math.max(total, 1);
  const uploads = step === "upload" || step === "again";
  found("amount", HTMLSpanElement).textContent = uploads ? `${bytes(done)} of ${bytes(total)}` : "";
}

/** Evaluation keys whose secret key ends with this page leave the server with it; `keepalive` outlives the page. */
function forget(): void {
  const headers: Record<string, string> = apiKey.value === "" ? {} : { Authorization: `Bearer ${apiKey.value}` };
  for (const name of temporaryKeys)
    fetch(`/v2/keys/${encodeURIComponent(name)}`, { method: "DELETE", headers, keepalive: true }).catch(() => undefined);
  temporaryKeys = [];
}

sayWhoServed();
addEventListener("pagehide", forget);
access.addEventListener("submit", (event) => {
  event.preventDefault();
  void attempt(listModels);
});
found("sample", HTMLFormElement).addEventListener("submit", (event) => {
  event.preventDefault();
  if (!ask.disabled) void attempt(score);
});
inputs.addEventListener("input", clear);
models.addEventListener("change", () => void attempt(choose));
void attempt(listModels);
