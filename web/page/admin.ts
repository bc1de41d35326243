// The administrator's page: asks for the API key, looks at the load every few seconds while somebody sees the page, and shows lists.

import type { Load } from "./admin/answers.js";
import { makeLists } from "./admin/lists.js";
import { LoadView } from "./admin/load.js";
import { RefusedError, Service } from "./admin/service.js";
import { found, reveal } from "./elements.js";

const PAUSE_MS = 3000;
const JOBS_TURNS = 2; // every so many looks at the load, the jobs
const LISTS_TURNS = 10; // and everything
const NO_ANSWER = "No answer. This page asks again.";

const status = found("status", HTMLParagraphElement);
const problem = found("error", HTMLParagraphElement);
const access = found("access", HTMLFormElement);
const apiKey = found("api-key", HTMLInputElement);
const content = found("content", HTMLElement);
const places = found("places", HTMLElement);

const service = new Service();
const load = new LoadView();
const lists = makeLists({ service, act, attempt });
let turn = 0;
let timer = 0; // 0: nobody looks

function say(text: string): void {
  if (status.textContent !== text) status.textContent = text; // said once, not at every look
}

/** Runs what a person asked for; says so when it fails. */
async function attempt(work: () => Promise<void>): Promise<void> {
  problem.hidden = true;
  try {
    await work();
  } catch (error) {
    fail(error);
    if (access.hidden) reveal(problem);
  }
}

async function act(done: string, work: () => Promise<void>, ...changed: string[]): Promise<void> {
  await attempt(async () => {
    say("Asking the service");
    try {
      await work();
    } catch (error) {
      say("Not done.");
      throw error;
    } finally {
      await Promise.all(changed.map((name) => lists.get(name)?.refresh()));
    }
    say(done);
  });
}

function fail(error: unknown): void {
  problem.textContent = inWords(error);
  problem.hidden = false;
  if (error instanceof RefusedError && (error.status === 401 || error.code === "forbidden")) close();
}

function inWords(error: unknown): string {
  if (!(error instanceof RefusedError)) return "The service does not answer. Is it running, and are you connected?";
  if (error.status === 401) return "The service asks for an API key, or does not know this one.";
  if (error.code === "forbidden") return "This API key does not have the scope admin.";
  return `${error.message.charAt(0).toUpperCase()}${error.message.slice(1)}.`;
}

/** Nothing is shown without an API key, nor kept. */
function close(): void {
  stop();
  service.use("");
  load.clear();
  for (const list of lists.values()) list.clear();
  apiKey.value = "";
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  content.hidden = places.hidden = true;
  access.hidden = false;
  say("An API key is needed.");
  apiKey.focus();
}

async function open(): Promise<void> {
  problem.hidden = true;
  say("Asking the service");
  try {
    load.show(await service.get<Load>("load"));
    await Promise.all([...lists.values()].map((list) => list.refresh()));
  } catch (error) {
    close();
    throw error;
  }
  apiKey.value = "";
  access.hidden = true;
  content.hidden = places.hidden = false;
  say("This page refreshes every few seconds.");
  turn = 0;
  start();
}

async function look(): Promise<void> {
  try {
    load.show(await service.get<Load>("load"));
    ++turn;
    const due = turn % LISTS_TURNS === 0 ? [...lists.keys()] : turn % JOBS_TURNS === 0 ? ["jobs"] : [];
    await Promise.all(due.map((name) => lists.get(name)?.refreshFirst()));
    if (status.textContent === NO_ANSWER) {
      say("The service answers again.");
      problem.hidden = true;
    }
  } catch (error) {
    if (timer === 0) return; // stopped meanwhile
    say(NO_ANSWER);
    fail(error);
  }
  if (timer !== 0) start();
}

function start(): void {
  stop();
  if (!document.hidden && !content.hidden) timer = window.setTimeout(() => void look(), PAUSE_MS);
}

function stop(): void {
  clearTimeout(timer);
  timer = 0;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) stop();
  else if (!content.hidden) {
    timer = -1;
    void look();
  }
});
addEventListener("pagehide", () => service.use("")); // also from a page that the browser keeps to go back to
addEventListener("pageshow", (event) => event.persisted && location.reload());
found("leave", HTMLButtonElement).addEventListener("click", () => {
  problem.hidden = true;
  close();
});
access.addEventListener("submit", (event) => {
  event.preventDefault();
  service.use(apiKey.value.trim());
  void attempt(open);
});
// A service on this machine alone asks for no API key; another asks for one, which is no error yet.
open().catch((error: unknown) => {
  if (!(error instanceof RefusedError) || error.status !== 401) fail(error);
});
