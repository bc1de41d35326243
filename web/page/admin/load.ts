// The load: what runs, how full everything is, and requests of the last minutes.

import { found, made } from "../elements.js";
import { seconds } from "../words.js";
import type { Load, Run } from "./answers.js";
import { Chart } from "./chart.js";
import { LiveTable } from "./table.js";
import { count, duration, size } from "./units.js";

const REMEMBERED = 100; // looks at the queue

const COLUMNS = [
  { title: "Run", kind: "name", text: (run: Run) => run.id },
  { title: "For", text: (run: Run) => `${run.tenant} (${run.kind === "job" ? "a job" : "waits for it"})` },
  { title: "Model", text: (run: Run) => `${run.model}, version ${run.version}` },
  { title: "Parameter set", text: (run: Run) => run.parameter_set },
  { title: "Samples", kind: "number", text: (run: Run) => count(run.samples) },
  { title: "Waited", kind: "number", text: (run: Run) => seconds(run.waited_seconds) },
  { title: "Running for", kind: "number", text: (run: Run) => (run.seconds === null ? "not yet" : seconds(run.seconds)) },
  { title: "Device", text: (run: Run) => run.device ?? "" },
] as const;

export class LoadView {
  readonly #runs = new LiveTable<Run>("Runs in progress", COLUMNS, (run) => run.id, [], "Nothing runs.");
  readonly #requests = new Chart(2);
  readonly #work = new Chart(2);
  readonly #gauges = new Map<string, { meter: HTMLMeterElement; value: HTMLElement }>();
  #waiting: number[] = [];
  #running: number[] = [];

  constructor() {
    found("charts", HTMLDivElement).append(this.#requests.element, this.#work.element);
    found("runs", HTMLDivElement).append(this.#runs.element);
  }

  show(load: Load): void {
    this.#showFacts(load);
    this.#showCharts(load);
    const { keys, queue, connections, bodies, disk } = load;
    this.#gauge("Queue", queue.waiting, queue.limit, `${queue.waiting} of ${queue.limit}`);
    if (connections !== null)
      this.#gauge(
        "Connections",
        connections.open,
        connections.limit,
        `${connections.open} of ${connections.limit}, ${connections.busy} busy`,
      );
    this.#gauge("Keys in memory", keys.memory_bytes, keys.memory_limit_bytes, part(keys.memory_bytes, keys.memory_limit_bytes));
    this.#gauge("Keys on devices", keys.device_bytes, keys.device_limit_bytes, part(keys.device_bytes, keys.device_limit_bytes));
    this.#gauge("Request bodies in memory", bodies.held_bytes, bodies.limit_bytes, part(bodies.held_bytes, bodies.limit_bytes));
    const [room, used] = [Math.max(0, disk.room_bytes), Math.max(0, disk.free_bytes - disk.room_bytes)];
    this.#gauge("Disk: used or reserved", used, used + room, `${size(room)} free, ${size(disk.reserve_bytes)} kept in reserve`);
    this.#runs.show(load.runs);
  }

  clear(): void {
    for (const id of ["facts", "codes", "gauges"]) found(id, HTMLElement).replaceChildren();
    this.#gauges.clear();
    this.#runs.show([]);
    [this.#waiting, this.#running] = [[], []];
  }

  #showFacts({ version, service, uptime_seconds, engine, jobs, keys }: Load): void {
    const runs = keys.hits + keys.misses;
    const facts: [string, string][] = [
      ["Service", `${service.slice(0, 8)}, version ${version}, up for ${duration(uptime_seconds)}`],
      [
        "Engine",
        `${engine.answers ? `on ${engine.devices.join(", ")}, ${engine.workers} runs at a time` : "does not answer"}; restarted ${engine.restarts} times`,
      ],
      ["Keys", `${keys.resident} loaded; ${keys.hits} of ${runs} runs found their keys on the device`],
      [
        "Jobs",
        Object.entries(jobs)
          .map(([state, number]) => `${count(number)} ${state}`)
          .join(", "),
      ],
    ];
    const rows = facts.flatMap(([term, value]) => [made("dt", { textContent: term }), made("dd", { textContent: value })]);
    found("facts", HTMLDListElement).replaceChildren(...rows);
  }

  #showCharts({ requests, queue, runs }: Load): void {
    const perSecond = requests.requests.map((number) => number / requests.step_seconds);
    const wrong = requests.requests.map((_, i) => ((requests.refused[i] ?? 0) + (requests.failed[i] ?? 0)) / requests.step_seconds);
    const minutes = Math.round((requests.requests.length * requests.step_seconds) / 60);
    const text = `Requests a second, ${minutes} minutes: now ${(perSecond.at(-1) ?? 0).toFixed(1)}, of which errors (dashed) ${(wrong.at(-1) ?? 0).toFixed(1)}`;
    this.#requests.show(text, perSecond, wrong);
    this.#waiting = [...this.#waiting, queue.waiting].slice(-REMEMBERED);
    this.#running = [...this.#running, runs.length].slice(-REMEMBERED);
    this.#work.show(
      `Waiting ${queue.waiting}, about ${seconds(queue.seconds)} of work; running (dashed) ${runs.length}`,
      this.#waiting,
      this.#running,
    );
    const codes = Object.entries(requests.codes).map(([code, number]) => `${code} ${number}`);
    found("codes", HTMLParagraphElement).textContent = codes.length === 0 ? "" : `Errors in ${minutes} minutes: ${codes.join(", ")}.`;
  }

  #gauge(title: string, value: number, limit: number, text: string): void {
    let gauge = this.#gauges.get(title);
    if (gauge === undefined) {
      gauge = { meter: made("meter"), value: made("b") };
      this.#gauges.set(title, gauge);
      const names = made("span", {}, made("span", { textContent: title }), gauge.value);
      found("gauges", HTMLDivElement).append(made("div", { className: "gauge" }, names, gauge.meter));
    }
    const max = Math.max(1, limit);
    Object.assign(gauge.meter, { min: 0, max, low: 0.6 * max, high: 0.85 * max, optimum: 0, value });
    gauge.meter.setAttribute("aria-label", `${title}: ${text}`);
    gauge.value.textContent = text;
  }
}

function part(held: number, limit: number): string {
  return `${size(held)} of ${size(limit)}`;
}
