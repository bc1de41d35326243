// The steps of tests/vectors/steps, which the Python client is tested with too.
import { readFileSync } from "node:fs";

// What JSON has no form for; a tuple is a list here.
const marked = (_, value) => (typeof value?.float === "string" ? Number(value.float) : (value?.tuple ?? value));

/** Each with the whole of its specification as `json`. */
export const cases = ["drawn", "kept"].flatMap((name) => {
  const text = readFileSync(new URL(`../../tests/vectors/steps/${name}.json`, import.meta.url), "utf8");
  const { common, cases } = JSON.parse(text, marked);
  return cases.map((each) => ({ ...each, json: JSON.stringify({ ...common, ...each.client }) }));
});
