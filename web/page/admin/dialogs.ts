// Questions before something is changed.

import { found } from "../elements.js";
import type { Tenant } from "./answers.js";

/** Whether the answer is `yes`; Escape is no, and no has the focus. */
export function confirmed(question: string, yes: string): Promise<boolean> {
  const dialog = found("confirm", HTMLDialogElement);
  const [yesButton, noButton] = [found("yes", HTMLButtonElement), found("no", HTMLButtonElement)];
  found("question", HTMLParagraphElement).textContent = question;
  yesButton.textContent = yes;
  return new Promise((resolve) => {
    dialog.returnValue = "";
    yesButton.onclick = (): void => dialog.close("yes");
    noButton.onclick = (): void => dialog.close();
    dialog.onclose = (): void => resolve(dialog.returnValue === "yes");
    dialog.showModal();
    noButton.focus();
  });
}

type Terms = Pick<Tenant, "max_bytes" | "max_bootstraps_per_day" | "max_answers_per_day" | "max_queue" | "models">;

const LIMITS = [
  ["max_bytes", "max-bytes"],
  ["max_bootstraps_per_day", "max-bootstraps"],
  ["max_answers_per_day", "max-answers"],
  ["max_queue", "max-queue"],
] as const;

/** What is to change of a tenant; null when nothing is. */
export function changedTerms(tenant: Tenant): Promise<Partial<Terms> | null> {
  const dialog = found("terms", HTMLDialogElement);
  const [every, some] = [found("every-model", HTMLInputElement), found("some-models", HTMLInputElement)];
  const problem = found("terms-error", HTMLParagraphElement);
  found("terms-title", HTMLHeadingElement).textContent = `What ${tenant.tenant} may use`;
  for (const [field, id] of LIMITS) found(id, HTMLInputElement).value = tenant[field]?.toString() ?? "";
  every.checked = tenant.models === null;
  some.value = tenant.models?.join(" ") ?? "";
  some.disabled = every.checked;
  problem.hidden = true;
  return new Promise((resolve) => {
    let changes: Partial<Terms> | null = null;
    every.onchange = (): void => void (some.disabled = every.checked);
    found("terms-no", HTMLButtonElement).onclick = (): void => dialog.close();
    found("terms-form", HTMLFormElement).onsubmit = (event): void => {
      event.preventDefault();
      const wanted = wantedTerms(every.checked, some.value);
      problem.hidden = typeof wanted !== "string";
      if (typeof wanted === "string") problem.textContent = wanted;
      else {
        changes = differing(tenant, wanted);
        dialog.close();
      }
    };
    dialog.onclose = (): void => resolve(changes);
    dialog.showModal();
  });
}

/** As filled in, or what is wrong with it. */
function wantedTerms(every: boolean, names: string): Terms | string {
  const models = every ? null : [...new Set(names.split(/\s+/).filter((name) => name !== ""))].sort();
  const terms: Terms = { max_bytes: null, max_bootstraps_per_day: null, max_answers_per_day: null, max_queue: null, models };
  for (const [field, id] of LIMITS) {
    const text = found(id, HTMLInputElement).value.trim();
    if (text === "") continue;
    const value = Number(text);
    if (!/^\d+$/.test(text) || !Number.isSafeInteger(value)) return "A limit is a whole number, 0 or more, or empty.";
    terms[field] = value;
  }
  return terms;
}

function differing(tenant: Tenant, wanted: Terms): Partial<Terms> | null {
  const changed = Object.entries(wanted).filter(([field, value]) => JSON.stringify(value) !== JSON.stringify(tenant[field as keyof Terms]));
  return changed.length === 0 ? null : Object.fromEntries(changed);
}
