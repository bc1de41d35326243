// The secret side of the page: keys, encryption and decryption, where they hold up nobody. The page has no keys.

import {
  type AuditFile,
  Client,
  type ClientSpecification,
  type ConsentQuestion,
  Engine,
  type Given,
  IndexedDbStore,
  isNumbers,
  Keyring,
  type Keys,
  ParameterError,
  type ScoreOptions,
  type Scores,
  TemporaryKeys,
} from "../src/index.js";
import { labelOf } from "./answers.js";
import {
  type Answers,
  type Decision,
  type Description,
  failureOf,
  type News,
  type Question,
  type Reply,
  type Scored,
  type WholeSample,
} from "./messages.js";

interface Session {
  client: Client;
  keys: Keys;
  /** Where the keys are kept, if they are. */
  store: IndexedDbStore | null;
  /** Parameter sets whose keys the server had for an answer. */
  answered: Set<string>;
}

const PATIENCE_MS = 300; // before another tab is mentioned

let session: Session | null = null;
let loading: Promise<Engine> | null = null;
let consents = 0;
const undecided = new Map<number, (agreed: boolean) => void>();
let last: { client: Client; model: string; scores: Scores } | null = null; // what an audit is about

const scope = self as unknown as { onmessage: (event: MessageEvent) => void; postMessage(reply: Reply): void };
scope.onmessage = ({ data }: MessageEvent<{ id: number; question: Question } | Decision>) => {
  if ("consent" in data) return decide(data);
  const { id, question } = data;
  answer(question, (news) => scope.postMessage({ id, news })).then(
    (found) => scope.postMessage({ id, answer: found }),
    (error: unknown) => scope.postMessage({ id, failure: failureOf(error) }),
  );
};

/** Asks the person at the page; the client waits. */
function confirm(request: ConsentQuestion): Promise<boolean> {
  const consent = ++consents;
  return new Promise((resolve) => {
    undecided.set(consent, resolve);
    scope.postMessage({ consent, request });
  });
}

function decide({ consent, agreed }: Decision): void {
  undecided.get(consent)?.(agreed);
  undecided.delete(consent);
}

async function answer(question: Question, report: (news: News) => void): Promise<Answers[Question["kind"]]> {
  switch (question.kind) {
    case "open":
      return open(question);
    case "describe":
      return describe(question.model);
    case "facts":
      return opened().client.facts(question.model);
    case "score":
      return score(question, report);
    case "audit":
      return audit(question.withKeys);
    case "close":
      await close();
      return null;
  }
}

async function open({ url, service, access: { apiKey, passphrase } }: Extract<Question, { kind: "open" }>): Promise<string[]> {
  await close();
  const engine = await (loading ??= Engine.load());
  const store = passphrase === undefined ? null : new IndexedDbStore();
  const keys = store === null ? new TemporaryKeys(engine) : new Keyring(store, passphrase as string, engine);
  // Keys with structured secrets are agreed to question by question. What models were at first use outlives keys that end with the page.
  const pins = new IndexedDbStore("cloakwork-pins");
  const client = new Client(url, { apiKey, keys, engine, structured: true, confirm, pins, ...(service !== undefined && { service }) });
  session = { client, keys: client.keys, store, answered: new Set() };
  return session.client.models();
}

async function close(): Promise<void> {
  const ended = session;
  session = last = null;
  await ended?.client.close();
}

function opened(): Session {
  if (session === null) throw new Error("the page asked before it opened a session");
  return session;
}

async function audit(withKeys: boolean): Promise<AuditFile> {
  if (last === null) throw new Error("the page asked for an audit before it had an answer");
  return last.client.audit(last.model, last.scores, { withKeys });
}

async function describe(model: string): Promise<Description> {
  const { specification, facts } = await opened().client.model(model);
  return {
    inputShape: [...specification.inputShape],
    expected: specification.expected,
    labels: specification.labels.map(String),
    structuredSecret: specification.parameters.structuredSecret,
    facts,
  };
}

async function score({ model, numbers, structured }: Extract<Question, { kind: "score" }>, report: (news: News) => void): Promise<Scored> {
  const current = opened();
  const { client, keys, answered } = current;
  const { specification } = await client.model(model);
  const { name: set, structuredSecret } = specification.parameters;
  if (structuredSecret && !structured)
    throw new ParameterError(`parameter set '${set}' has a structured secret; its keys are made only when the person agrees`);
  const warnings: string[] = [];
  let sent: Uint8Array = new Uint8Array();
  let received: Uint8Array = new Uint8Array();
  let sending = false; // from the first part on, while others are made: what is shown does not jump between the two
  const waits = (): void => report({ step: "waits", done: 0, total: 1 });
  const found = await sharingKeys(current, set, waits, (started) =>
    client.score(model, sample(specification, numbers), {
      onWarning: ({ message }) => warnings.push(message),
      progress: (what, done, total) => {
        sending ||= what === "upload";
        if (sending && what === "keys") return;
        report({ step: what === "upload" && answered.has(set) ? "again" : what, done, total });
      },
      witness: (what, ciphertexts) => {
        if (what === "received") received = ciphertexts;
        else {
          started();
          sent = ciphertexts;
          report({ step: "encrypted", done: 1, total: 1, sent });
        }
      },
    } satisfies ScoreOptions),
  );
  answered.add(set);
  last = { client, model, scores: found };
  const key = await keys.key(set);
  const scores = await specification.decrypt(key, received, { until: "probabilities", samples: 1 });
  return {
    label: labelOf(found.predictions, specification.expected),
    scores: isNumbers(scores) ? [...scores.data] : [],
    warnings,
    sent,
    receivedBytes: found.resultBytes,
    uploadBytes: found.uploadBytes,
    seconds: found.seconds,
    computeSeconds: found.computeSeconds,
    temporaryKeys: keys.lasting ? [] : client.uploadedKeys,
  };
}

function sample({ inputSize, inputShape }: ClientSpecification, numbers: number[] | WholeSample): Given {
  if (!Array.isArray(numbers)) return numbers.x;
  const shape = numbers.length === inputSize ? inputShape : [numbers.length];
  return { shape: [1, ...shape], data: Float64Array.from(numbers) };
}

/** Two tabs with one passphrase make and send the keys once: the second waits until the first has sent them (`started`) or has failed. */
async function sharingKeys(
  { store, answered }: Session,
  set: string,
  waits: () => void,
  work: (started: () => void) => Promise<Scores>,
): Promise<Scores> {
  if (store === null || answered.has(set)) return work(() => undefined);
  let result: Promise<Scores> | undefined;
  const patience = setTimeout(waits, PATIENCE_MS);
  await store.exclusively(`upload of ${set}`, async () => {
    clearTimeout(patience);
    await new Promise<void>((resolve) => {
      result = work(resolve);
      result.then(
        () => resolve(),
        () => resolve(),
      );
    });
  });
  return result as Promise<Scores>;
}
