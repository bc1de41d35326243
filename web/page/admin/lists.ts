// Models, jobs, tenants, API keys and evaluation keys: what is shown of them and what can be done with them.

import { seconds } from "../words.js";
import type { ApiKey, EvaluationKey, Job, Model, Tenant } from "./answers.js";
import { changedTerms, confirmed } from "./dialogs.js";
import { type Filter, type ListDefinition, ListView, type Refreshable } from "./list.js";
import type { Service } from "./service.js";
import { count, moment, size } from "./units.js";

const OF_TENANT: Filter = { name: "tenant", title: "Tenant", pattern: "[a-z0-9][a-z0-9\\-]{0,62}", form: "A name of a-z, 0-9 and '-'" };
const STATES = ["queued", "running", "done", "failed", "cancelled"];
const OVER = ["done", "failed", "cancelled"];

/** Runs what a person asked for, says that it is done or what went wrong, and shows the lists that it changed. */
export type Act = (done: string, work: () => Promise<void>, ...changed: string[]) => Promise<void>;

interface Tools {
  service: Service;
  act: Act;
  attempt: (work: () => Promise<void>) => Promise<void>;
}

/** By the names of their sections, in the page's order. */
export function makeLists(tools: Tools): ReadonlyMap<string, Refreshable> {
  const { service, attempt } = tools;
  const view = <R>(definition: ListDefinition<R>): [string, Refreshable] => [definition.id, new ListView(service, definition, attempt)];
  return new Map([view(models(tools)), view(jobs(tools)), view(tenants(tools)), view(apiKeys(tools)), view(keys(tools))]);
}

function models({ service, act }: Tools): ListDefinition<Model> {
  const change = async ({ name }: Model, verb: "load" | "unload", question: string): Promise<void> => {
    if (await confirmed(question, verb === "load" ? "Load it" : "Unload it"))
      await act(`Model ${name} is ${verb}ed.`, () => service.change("POST", ["models", name, verb]), "models");
  };
  return {
    id: "models",
    title: "Models",
    caption: "Versions of models, and their runs since the service started",
    rows: "models",
    identity: (model) => `${model.name}/${model.version}`,
    columns: [
      { title: "Model", text: (model) => model.name },
      { title: "Version", text: (model) => model.version },
      { title: "State", text: ({ state, reason }) => [state.replaceAll("_", " "), reason].filter((part) => part !== "").join(": ") },
      { title: "Parameter set", text: (model) => model.parameter_set },
      { title: "Bootstraps per sample", kind: "number", text: (model) => count(model.bootstraps) },
      { title: "Runs", kind: "number", text: (model) => count(model.runs) },
      { title: "Samples", kind: "number", text: (model) => count(model.samples) },
      { title: "Compute time", kind: "number", text: (model) => (model.runs === 0 ? "" : seconds(model.run_seconds)) },
    ],
    actions: [
      {
        title: "Unload",
        fits: (model) => model.state === "loaded",
        run: (model) =>
          void change(model, "unload", `Take every version of ${model.name} out of service, for every tenant? Accepted jobs end with it.`),
      },
      {
        title: "Load",
        fits: (model) => ["unloaded", "unavailable"].includes(model.state),
        run: (model) => void change(model, "load", `Put every version of ${model.name} that is not retired into service?`),
      },
    ],
    filters: [],
  };
}

function jobs({ service, act }: Tools): ListDefinition<Job> {
  const cancel = async ({ id, tenant }: Job): Promise<void> => {
    if (await confirmed(`Cancel job ${id} of ${tenant}? What it has computed is lost.`, "Cancel the job"))
      await act(`Job ${id} is cancelled.`, () => service.change("POST", ["jobs", id, "cancel"]), "jobs");
  };
  return {
    id: "jobs",
    title: "Jobs",
    caption: "Jobs, the newest first",
    rows: "jobs",
    identity: (job) => job.id,
    columns: [
      { title: "Job", kind: "name", text: (job) => job.id },
      { title: "Tenant", text: (job) => job.tenant },
      { title: "Model", text: (job) => `${job.model}, version ${job.version}` },
      { title: "State", text: stateOf },
      { title: "Samples", kind: "number", text: (job) => count(job.samples) },
      { title: "Priority", kind: "number", text: (job) => String(job.priority) },
      { title: "Accepted", text: (job) => moment(job.created_at) },
      { title: "Ended", text: (job) => moment(job.finished_at) },
      { title: "Compute time", kind: "number", text: (job) => (job.run_seconds === null ? "" : seconds(job.run_seconds)) },
    ],
    actions: [{ title: "Cancel", fits: (job) => !OVER.includes(job.state), run: (job) => void cancel(job) }],
    filters: [OF_TENANT, { name: "state", title: "State", values: STATES }],
  };
}

function stateOf({ state, progress, error_code }: Job): string {
  if (progress !== null && progress.total > 0) return `${state}, ${Math.floor((100 * progress.done) / progress.total)} %`;
  return error_code === null ? state : `${state}: ${error_code}`;
}

function tenants({ service, act }: Tools): ListDefinition<Tenant> {
  const change = async (tenant: Tenant): Promise<void> => {
    const changes = await changedTerms(tenant);
    if (changes !== null)
      await act(`Tenant ${tenant.tenant} is changed.`, () => service.change("PATCH", ["tenants", tenant.tenant], changes), "tenants");
  };
  return {
    id: "tenants",
    title: "Tenants",
    caption: "Tenants, and what they use of their limits",
    rows: "tenants",
    identity: (tenant) => tenant.tenant,
    columns: [
      { title: "Tenant", text: (tenant) => tenant.tenant },
      { title: "Models", text: (tenant) => (tenant.models === null ? "every model" : tenant.models.join(", ") || "none") },
      { title: "Stored", kind: "number", text: ({ bytes_stored, limits }) => of(bytes_stored["total"] ?? 0, limits.bytes, size) },
      { title: "Bootstraps today", kind: "number", text: ({ today, limits }) => of(today.bootstraps, limits.bootstraps_per_day, count) },
      {
        title: "Answers of a model today",
        kind: "number",
        text: ({ most_answers_today, limits }) => of(most_answers_today, limits.answers_per_day, count),
      },
      { title: "Requests today", kind: "number", text: ({ today }) => count(today.requests) },
      { title: "Waiting", kind: "number", text: ({ waiting, limits }) => of(waiting, limits.queue, count) },
      { title: "API keys", kind: "number", text: (tenant) => count(tenant.api_keys) },
    ],
    actions: [{ title: "Change", fits: () => true, run: (tenant) => void change(tenant) }],
    filters: [],
  };
}

function of(used: number, limit: number, text: (value: number) => string): string {
  return `${text(used)} of ${text(limit)}`;
}

function apiKeys({ service, act }: Tools): ListDefinition<ApiKey> {
  const revoke = async ({ id, tenant }: ApiKey): Promise<void> => {
    if (await confirmed(`Revoke API key ${id} of ${tenant}? It cannot be made valid again.`, "Revoke it"))
      await act(`API key ${id} is revoked.`, () => service.change("POST", ["api-keys", id, "revoke"]), "api-keys", "tenants");
  };
  return {
    id: "api-keys",
    title: "API keys",
    caption: "API keys by their public part, the newest first",
    rows: "api_keys",
    identity: (key) => key.id,
    columns: [
      { title: "API key", kind: "name", text: (key) => key.id },
      { title: "Tenant", text: (key) => key.tenant },
      { title: "Scopes", text: (key) => key.scopes.join(", ") },
      { title: "State", text: (key) => key.state },
      { title: "Created", text: (key) => moment(key.created_at) },
      { title: "Expires", text: (key) => moment(key.expires_at) },
    ],
    actions: [{ title: "Revoke", fits: (key) => key.state === "valid", run: (key) => void revoke(key) }],
    filters: [OF_TENANT],
  };
}

function keys({ service, act }: Tools): ListDefinition<EvaluationKey> {
  const discard = async ({ id, tenant }: EvaluationKey): Promise<void> => {
    const question = `Delete evaluation keys ${id} of ${tenant}? Jobs that need them fail; the tenant can upload them again.`;
    if (await confirmed(question, "Delete them"))
      await act(`Evaluation keys ${id} are deleted.`, () => service.change("DELETE", ["keys", id]), "keys", "tenants");
  };
  return {
    id: "keys",
    title: "Evaluation keys",
    caption: "Evaluation keys, the newest first",
    rows: "keys",
    identity: (key) => key.id,
    columns: [
      { title: "Keys", kind: "name", text: (key) => key.id },
      { title: "Tenant", text: (key) => key.tenant },
      { title: "Parameter set", text: (key) => key.parameter_set },
      { title: "Size", kind: "number", text: (key) => size(key.bytes) },
      { title: "State", text: (key) => (key.resident ? `${key.state}, loaded` : key.state) },
      { title: "Created", text: (key) => moment(key.created_at) },
      { title: "Last used", text: (key) => moment(key.used_at) },
      { title: "Expires", text: (key) => moment(key.expires_at) },
    ],
    actions: [{ title: "Delete", fits: () => true, run: (key) => void discard(key) }],
    filters: [OF_TENANT],
  };
}
