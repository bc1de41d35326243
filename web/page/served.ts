// Who served this page: the service itself, or `cloakwork page` on this machine, which writes the service's address into its first line.

import { found } from "./elements.js";

export function sayWhoServed(): void {
  const { service } = document.documentElement.dataset;
  if (service === undefined) return;
  found("trust", HTMLParagraphElement).textContent =
    `This page came from this machine, where cloakwork is installed, and not from the service. The service is ${service}. It gets what the table says, through the program that served the page.`;
}
