// The page's end of the worker.

import type { ConsentQuestion } from "../src/index.js";
import type { Answers, Decision, Failure, News, Question, Reply } from "./messages.js";

/** What the worker could not do. */
export class FailedError extends Error {
  readonly failure: Failure;

  constructor(failure: Failure) {
    super(failure.message);
    this.failure = failure;
  }
}

interface Waiting {
  resolve: (answer: never) => void;
  reject: (error: Error) => void;
  report: (news: News) => unknown;
}

export class Scorer {
  readonly #worker: Worker;
  readonly #waiting = new Map<number, Waiting>();
  readonly #confirm: (request: ConsentQuestion) => Promise<boolean>;
  #asked = 0;

  /** `confirm` asks the person what the worker may not do by itself. */
  constructor(script: URL, confirm: (request: ConsentQuestion) => Promise<boolean>) {
    this.#confirm = confirm;
    this.#worker = new Worker(script, { type: "module" });
    this.#worker.onmessage = ({ data }: MessageEvent<Reply>) => this.#take(data);
    this.#worker.onerror = () => this.#fail("the part of the page that encrypts did not start");
  }

  ask<Q extends Question>(question: Q, report: (news: News) => unknown = () => undefined): Promise<Answers[Q["kind"]]> {
    const id = ++this.#asked;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, report });
      this.#worker.postMessage({ id, question });
    });
  }

  #take(reply: Reply): void {
    if ("consent" in reply) {
      const { consent, request } = reply;
      void this.#confirm(request).then((agreed) => this.#worker.postMessage({ consent, agreed } satisfies Decision));
      return;
    }
    const waiting = this.#waiting.get(reply.id);
    if (waiting === undefined) return;
    if ("news" in reply) return void waiting.report(reply.news);
    this.#waiting.delete(reply.id);
    if ("failure" in reply) waiting.reject(new FailedError(reply.failure));
    else waiting.resolve(reply.answer as never);
  }

  #fail(message: string): void {
    for (const { reject } of this.#waiting.values()) reject(new Error(message));
    this.#waiting.clear();
  }
}
