// The routes of the service from its openapi.json: nothing is loaded from elsewhere.

import { found, made } from "./elements.js";

interface Operation {
  summary?: string;
  description?: string;
  tags?: string[];
  security?: unknown[];
  parameters?: { name: string; in: string; required?: boolean; description?: string; schema?: Schema }[];
  requestBody?: { description?: string; content?: Record<string, { schema?: Schema }> };
  responses?: Record<string, { description?: string; content?: Record<string, { schema?: Schema }> }>;
}

interface Schema {
  $ref?: string;
  type?: string;
  description?: string;
  items?: Schema;
  anyOf?: Schema[];
  properties?: Record<string, Schema>;
}

interface Description {
  info: { title: string; version: string; description?: string };
  paths: Record<string, Record<string, Operation>>;
  components?: { schemas?: Record<string, Schema> };
}

function typeOf({ $ref, type, items, anyOf }: Schema = {}): string {
  if ($ref !== undefined) return $ref.split("/").at(-1) as string;
  if (anyOf !== undefined) return anyOf.map(typeOf).join(" or ");
  return type === "array" ? `list of ${typeOf(items)}` : (type ?? "any");
}

function contents(content: Record<string, { schema?: Schema }> = {}): string {
  return Object.entries(content)
    .map(([media, { schema }]) => `${media}: ${typeOf(schema)}`)
    .join(", ");
}

function table(caption: string, rows: string[][]): Node[] {
  if (rows.length === 0) return [];
  const body = rows.map(([head = "", ...cells]) =>
    made(
      "tr",
      {},
      Object.assign(made("th", { textContent: head }), { scope: "row" }),
      ...cells.map((text) => made("td", { textContent: text })),
    ),
  );
  return [made("div", { className: "scroll" }, made("table", {}, made("caption", { textContent: caption }), made("tbody", {}, ...body)))];
}

function route(
  method: string,
  path: string,
  { description, summary, security, parameters = [], requestBody, responses = {} }: Operation,
): HTMLElement {
  const asked = parameters.map((each) => [
    each.name,
    each.in,
    typeOf(each.schema),
    each.required ? "required" : "",
    each.description ?? "",
  ]);
  const answers = Object.entries(responses).map(([code, each]) => [code, each.description ?? "", contents(each.content)]);
  const body =
    requestBody === undefined
      ? []
      : [made("p", { textContent: `Body: ${requestBody.description ?? ""} ${contents(requestBody.content)}` })];
  return made(
    "details",
    {},
    made("summary", {}, made("code", { textContent: `${method.toUpperCase()} ${path}` })),
    made("p", { textContent: description ?? summary ?? "" }),
    ...(security === undefined
      ? []
      : [made("p", { className: "quiet", textContent: "Needs an API key, in the header Authorization: Bearer cw_.." })]),
    ...table("Parameters", asked),
    ...body,
    ...table("Answers", answers),
  );
}

function schema(name: string, { description, properties = {} }: Schema): HTMLElement {
  const rows = Object.entries(properties).map(([field, each]) => [field, typeOf(each), each.description ?? ""]);
  return made(
    "details",
    {},
    made("summary", {}, made("code", { textContent: name })),
    made("p", { textContent: description ?? "" }),
    ...table("Fields", rows),
  );
}

function section(title: string, entries: HTMLElement[]): HTMLElement {
  return made("section", {}, made("h2", { textContent: title }), ...entries);
}

async function show(): Promise<void> {
  const answer = await fetch(new URL("../openapi.json", import.meta.url));
  const { info, paths, components } = (await answer.json()) as Description;
  const groups = new Map<string, HTMLElement[]>();
  for (const [path, operations] of Object.entries(paths))
    for (const [method, operation] of Object.entries(operations)) {
      const group = operation.tags?.[0] ?? "others";
      groups.set(group, [...(groups.get(group) ?? []), route(method, path, operation)]);
    }
  const schemas = Object.entries(components?.schemas ?? {}).map(([name, each]) => schema(name, each));
  const parts = [...groups].map(([title, entries]) => section(title, entries));
  document.title = `${info.title} ${info.version}: routes`;
  found("routes", HTMLElement).replaceChildren(made("p", { textContent: info.description ?? "" }), ...parts, section("Objects", schemas));
}

show().catch(() =>
  found("routes", HTMLElement).replaceChildren(made("p", { textContent: "The service does not answer. Load this page again." })),
);
