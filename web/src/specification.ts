// What the owner of the data needs to know of a compiled model: models/program/client_specification.py.

import { roundHalfEven, sizeOf, type Samples, type Tensor, tensor } from "./arrays.js";
import type { ClientKey } from "./client_key.js";
import type { InputStep } from "./columns.js";
import type { Engine } from "./engine.js";
import { FheError, KeyMismatchError, ParameterError, SerializationError, ShapeError } from "./errors.js";
import { demand, entries, MOST_NUMBERS, parsedObject, real, reals, shape, text } from "./fields.js";
import { inputSteps } from "./input_steps.js";
import { type Answer, type OutputStep, outputSteps, runOutputSteps, type Stage } from "./output_steps.js";
import { parameterSet, type ParameterSet } from "./parameters.js";
import { equalBytes, hexadecimal } from "./wire.js";

const VERSION = 2; // 1 did not say which program it belongs to
const MOST_PHASE = 0.25;
const SLACK = 1e-9;
const CHECKS_INPUT = ["Columns", "Categories"];

/**
 * Phases of the input are value * inputScale; values of the output are phase / outputScale + outputOffset. Inputs are encrypted for the program
 * of digest `program`, and only its results are decrypted.
 */
export class ClientSpecification {
  readonly parameters: ParameterSet;
  /** The digest of the compiled program. */
  readonly program: Uint8Array;
  readonly inputShape: readonly number[];
  readonly inputRange: readonly [number, number];
  readonly #inputScale: number;
  readonly #outputScale: Tensor;
  readonly #outputOffset: Tensor;
  readonly #outputUnit: number;
  readonly #inputSteps: InputStep[];
  readonly #outputSteps: OutputStep[];
  readonly #checksInput: boolean;

  /**
   * Reads the JSON that `cloakwork compile --client` writes and a service gives.
   *
   * SerializationError: not such a specification; KeyMismatchError: for another version of its parameter set; UnsupportedError: a step that
   * only the Python client does.
   */
  constructor(json: string, engine: Engine) {
    try {
      const given = parsedObject(json);
      demand(given["cloakwork_client"] === VERSION, "another version");
      this.parameters = checkedSet(engine, text(given["parameter_set"]), text(given["parameter_digest"]));
      this.program = digest(text(given["program_digest"]));
      this.inputShape = shape(given["input_shape"]);
      const [low, high] = entries(given["input_range"], 2).map(real) as [number, number];
      this.inputRange = [low, real(high)];
      this.#inputScale = real(given["input_scale"]);
      this.#outputScale = reals(given["output_scale"]);
      this.#outputOffset = reals(given["output_offset"]);
      this.#outputUnit = real(given["output_unit"] ?? 0);
      const { steps, names } = inputSteps(given["input_steps"] ?? []);
      this.#inputSteps = steps;
      this.#checksInput = CHECKS_INPUT.includes(names[0] ?? "");
      this.#outputSteps = outputSteps(given["client_steps"], given["output_steps"] ?? []);
      this.#checkNumbers();
    } catch (error) {
      if (error instanceof FheError) throw error;
      const reason = error instanceof RangeError ? error.message : "a field is missing or of another type";
      throw new SerializationError(`client specification: expected version ${VERSION} of its JSON; get it again (${reason})`);
    }
  }

  #checkNumbers(): void {
    const [scale, offset] = [this.#outputScale, this.#outputOffset];
    const [low, high] = this.inputRange;
    demand(
      scale.shape.join() === offset.shape.join() && scale.data.length > 0 && scale.data.length <= MOST_NUMBERS,
      "an offset for each scale",
    );
    demand(
      scale.data.every((each) => each > 0 && Number.isFinite(1 / each)),
      "positive scales",
    );
    demand(this.#outputUnit >= 0 && this.#outputUnit <= 1 && this.#inputScale > 0 && low <= high, "a unit, a scale and a range");
    demand(Math.max(Math.abs(low), Math.abs(high)) * this.#inputScale <= MOST_PHASE * (1 + SLACK), "a range that fits the torus");
  }

  /** How many numbers of a sample are encrypted. */
  get inputSize(): number {
    return sizeOf(this.inputShape);
  }

  /** Samples as the numbers [samples, *inputShape] that are encrypted; ShapeError for no samples, another shape, numbers that are not finite. */
  inputs(x: Samples | unknown[]): Tensor {
    if (!this.#checksInput) x = finite(tensor(x));
    const found = finite(tensor(this.#inputSteps.reduce<Samples | unknown[]>((value, step) => step(value), x)));
    if (found.shape.length === 0 || found.shape.slice(1).join() !== this.inputShape.join())
      throw new ShapeError(
        `input: expected an array of shape ['samples', ${this.inputShape.join(", ")}], got [${found.shape.join(", ")}]; samples come first`,
      );
    if (found.shape[0] === 0) throw new ShapeError("input: expected at least one sample, got none");
    const [low, high] = this.inputRange;
    return { shape: found.shape, data: found.data.map((value) => Math.min(Math.max(value, low), high)) };
  }

  /** Encrypted samples, seeded and packed, about four bytes for a number; for this program alone. */
  encrypt(key: ClientKey, x: Samples | unknown[]): Uint8Array {
    return this.encryptInputs(key, this.inputs(x));
  }

  /** What `inputs` gave. */
  encryptInputs(key: ClientKey, values: Tensor): Uint8Array {
    this.#checkKey(key);
    const [samples, numbers, lanes] = [values.shape[0] as number, this.inputSize, key.parameters.laneCount];
    const rows = Math.ceil(samples / lanes);
    // Sample s goes to lane s mod r, copies of the last one to lanes left over.
    const phases = new Float64Array(rows * numbers * lanes);
    for (let row = 0, i = 0; row < rows; ++row)
      for (let number = 0; number < numbers; ++number)
        for (let lane = 0; lane < lanes; ++lane, ++i)
          phases[i] = (values.data[Math.min(row * lanes + lane, samples - 1) * numbers + number] as number) * this.#inputScale;
    return key.encryptTorus(phases, { form: "packed", shape: [rows, numbers], purpose: this.program });
  }

  /**
   * The model's output from a service's answer, the final steps (softmax, arg-max) included. `until`: models of tables can stop at "scores" or
   * "probabilities". `samples`: how many were encrypted, for sets of several lanes.
   */
  decrypt(key: ClientKey, result: Uint8Array, { until = "labels", samples }: { until?: Stage; samples?: number } = {}): Answer {
    this.#checkKey(key);
    const found = key.phases(result);
    const { header } = found;
    if (header.purpose === null || !equalBytes(header.purpose, this.program))
      throw new KeyMismatchError(
        `result: expected ciphertexts for program ${hexadecimal(this.program).slice(0, 16)}, got some for ` +
          `${header.purpose === null ? "none" : hexadecimal(header.purpose).slice(0, 16)}; decrypt it with the client specification of its model`,
      );
    const [lanes, outputs] = [key.parameters.laneCount, this.#outputScale.data.length];
    const values = key.decode(found);
    const rows = header.shape[0] ?? 0;
    const count = samples ?? rows * lanes;
    if (values.length !== rows * outputs * lanes || Math.ceil(count / lanes) !== rows)
      throw new ShapeError(
        `result: expected ${outputs} numbers for each of ${count} samples, got [${header.shape.join(", ")}]; it is of another model`,
      );
    const phases = new Float64Array(count * outputs);
    for (let s = 0; s < count; ++s)
      for (let o = 0; o < outputs; ++o)
        phases[s * outputs + o] = values[(Math.floor(s / lanes) * outputs + o) * lanes + (s % lanes)] as number;
    return this.#finish({ shape: [count, ...this.#outputScale.shape], data: phases }, until);
  }

  #finish(phases: Tensor, until: Stage): Answer {
    const [scale, offset, unit] = [this.#outputScale.data, this.#outputOffset.data, this.#outputUnit];
    const values = phases.data.map((phase, i) => {
      const [s, o] = [scale[i % scale.length] as number, offset[i % scale.length] as number];
      const value = phase / s + o;
      return unit > 0 ? roundHalfEven((value - o) * (s / unit)) * (unit / s) + o : value;
    });
    return runOutputSteps(this.#outputSteps, { shape: phases.shape, data: values }, until);
  }

  #checkKey(key: ClientKey): void {
    if (key.parameters.name !== this.parameters.name)
      throw new KeyMismatchError(`key: expected one of parameter set '${this.parameters.name}', got '${key.parameters.name}'`);
  }
}

function checkedSet(engine: Engine, name: string, found: string): ParameterSet {
  let parameters: ParameterSet;
  try {
    parameters = parameterSet(engine, name);
  } catch (error) {
    if (!(error instanceof ParameterError)) throw error;
    throw new KeyMismatchError(`client specification: its parameter set cannot be used here (${error.message})`);
  }
  if (hexadecimal(parameters.digest) !== found)
    throw new KeyMismatchError(`client specification: it was made for another version of parameter set '${name}'; compile the model again`);
  return parameters;
}

function digest(hex: string): Uint8Array {
  demand(/^[0-9a-f]{64}$/.test(hex), "a digest of 64 hexadecimal digits");
  return Uint8Array.from({ length: 32 }, (_, i) => parseInt(hex.slice(2 * i, 2 * i + 2), 16));
}

function finite(x: Tensor): Tensor {
  if (!x.data.every(Number.isFinite)) throw new ShapeError("input: expected finite numbers; replace missing values first");
  return x;
}
