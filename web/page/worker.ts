// The secret side of the page: keys, encryption and decryption, where they hold up nobody. The page has no keys.

import { Client, Engine, IndexedDbStore, Keyring, type Keys, TemporaryKeys, type Tensor } from "../src/index.js";
import { type Access, type Answers, type Description, failureOf, type News, type Question, type Reply, type Scored } from "./messages.js";

interface Session {
  client: Client;
  keys: Keys;
}

let session: Session | null = null;
let loading: Promise<Engine> | null = null;

const scope = self as unknown as { onmessage: (event: MessageEvent) => void; postMessage(reply: Reply): void };
scope.onmessage = ({ data }: MessageEvent<{ id: number; question: Question }>) => {
  const { id, question } = data;
  answer(question, (news) => scope.postMessage({ id, news })).then(
    (found) => scope.postMessage({ id, answer: found }),
    (error: unknown) => scope.postMessage({ id, failure: failureOf(error) }),
  );
};

async function answer(question: Question, report: (news: News) => void): Promise<Answers[Question["kind"]]> {
  switch (question.kind) {
    case "open":
      return open(question.url, question.access);
    case "describe":
      return describe(question.model);
    case "score":
      return score(question.model, question.numbers, report);
    case "close":
      await close();
      return null;
  }
}

async function open(url: string, { apiKey, passphrase }: Access): Promise<string[]> {
  await close();
  const engine = await (loading ??= Engine.load());
  const keys = passphrase === undefined ? new TemporaryKeys(engine) : new Keyring(new IndexedDbStore(), passphrase, engine);
  session = { client: new Client(url, { apiKey, keys, engine }), keys };
  return session.client.models();
}

async function close(): Promise<void> {
  const ended = session;
  session = null;
  await ended?.client.close();
}

function opened(): Session {
  if (session === null) throw new Error("the page asked before it opened a session");
  return session;
}

async function describe(model: string): Promise<Description> {
  const { specification, facts } = await opened().client.model(model);
  return { inputShape: [...specification.inputShape], facts };
}

async function score(model: string, numbers: number[], report: (news: News) => void): Promise<Scored> {
  const { client, keys } = opened();
  const { specification } = await client.model(model);
  const shape = numbers.length === specification.inputSize ? specification.inputShape : [numbers.length];
  const x: Tensor = { shape: [1, ...shape], data: Float64Array.from(numbers) };
  let sent: Uint8Array = new Uint8Array();
  let received: Uint8Array = new Uint8Array();
  const found = await client.score(model, x, {
    progress: (step, done, total) => report({ step, done, total }),
    witness: (what, ciphertexts) => {
      if (what === "received") received = ciphertexts;
      else {
        sent = ciphertexts;
        report({ step: "encrypted", done: 1, total: 1, sent });
      }
    },
  });
  const key = await keys.key(specification.parameters.name);
  const scores = specification.decrypt(key, received, { until: "probabilities", samples: 1 });
  return {
    label: Array.isArray(found.predictions) ? String(found.predictions[0]) : null,
    scores: Array.isArray(scores) ? [] : [...scores.data],
    sent,
    receivedBytes: found.resultBytes,
    uploadBytes: found.uploadBytes,
    seconds: found.seconds,
    computeSeconds: found.computeSeconds,
    temporaryKeys: keys.lasting ? [] : client.uploadedKeys,
  };
}
