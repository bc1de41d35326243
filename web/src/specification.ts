// What the owner of the data needs to know of a compiled model: models/program/client_specification.py.

import { leastUnit, settled } from "./answers.js";
import { roundHalfEven, sizeOf, type Tensor } from "./arrays.js";
import type { ClientKey } from "./client_key.js";
import { clip, type Expected, type Given } from "./columns.js";
import type { Engine } from "./engine.js";
import { FheError, KeyMismatchError, ParameterError, SerializationError, ShapeError } from "./errors.js";
import { demand, entries, type Label, MOST_NUMBERS, parsedObject, real, reals, shape, text } from "./fields.js";
import { columnLabels, inputSteps, type InputSteps, runInputSteps } from "./input_steps.js";
import { MOST_BATCH_BYTES } from "./limits.js";
import { type Answer, type OutputStep, outputSteps, runOutputSteps, type Stage, STAGES } from "./output_steps.js";
import { parameterSet, type ParameterSet } from "./parameters.js";
import { type OnWarning, RangeReport, warnOnConsole } from "./range_report.js";
import { Unfit } from "./unfit.js";
import { CIPHERTEXTS, equalBytes, hexadecimal, mostResultBytes, PACKED_CIPHERTEXTS, readHeader, SWITCHED_CIPHERTEXTS } from "./wire.js";

const VERSION = 2; // 1 did not say which program it belongs to
const MOST_PHASE = 0.25;
const SLACK = 1e-9; // of the input's range, for rounding: what is reported as outside lies further

export interface InputOptions {
  /** Told of values beyond the calibrated range, which count as its end, and of those that the model does not take, which are replaced; without it `console.warn`. */
  onWarning?: OnWarning;
}

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
  readonly #inputSteps: InputSteps;
  readonly #outputSteps: OutputStep[];

  /**
   * Reads the JSON that `cloakwork compile --client` writes and a service gives.
   *
   * SerializationError: not such a specification, or its numbers, shapes and steps do not fit each other; KeyMismatchError: for another
   * version of its parameter set.
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
      this.#inputSteps = inputSteps(given["input_steps"] ?? []);
      this.#outputSteps = outputSteps(given["client_steps"], given["output_steps"] ?? [], this.#outputScale.shape);
      this.#checkNumbers();
      this.#checkSteps();
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
    demand(this.mostResultBytes(1) <= MOST_BATCH_BYTES, `an answer of at most ${MOST_BATCH_BYTES} bytes for a sample`);
    demand(this.#outputUnit >= 0 && this.#outputUnit <= 1 && this.#inputScale > 0 && low <= high, "a unit, a scale and a range");
    demand(this.#outputUnit === 0 || this.#outputUnit >= leastUnit(this.parameters), "a unit of outputs that noise leaves room for");
    demand(Math.max(Math.abs(low), Math.abs(high)) * this.#inputScale <= MOST_PHASE * (1 + SLACK), "a range that fits the torus");
  }

  /** Steps that fit each other and the shapes: tried on no samples, as any values may be refused. */
  #checkSteps(): void {
    const none = this.#inputSteps.first?.noSamples ?? { shape: [0, ...this.inputShape], data: new Float64Array() };
    const offset = { shape: [1, ...this.#outputOffset.shape], data: this.#outputOffset.data };
    let made: Tensor;
    try {
      made = runInputSteps(this.#inputSteps, none, new Unfit(), new RangeReport());
      for (const stage of STAGES) this.#finish(offset, stage);
    } catch (error) {
      if (!(error instanceof FheError)) throw error;
      throw new RangeError(`expected steps that fit each other (${error.message})`);
    }
    demand(made.shape.join() === [0, ...this.inputShape].join(), `steps that give [${this.inputShape.join(", ")}] numbers`);
  }

  /** What the user is asked for: a table with its columns, texts, several tensors, or numbers of one shape. */
  get expected(): Expected {
    return this.#inputSteps.first?.expected ?? { kind: "numbers", shape: this.inputShape };
  }

  /** The labels of a classifier, one for each of its scores or probabilities; empty for all other models. */
  get labels(): readonly Label[] {
    return this.#outputSteps.find((step) => step.labels !== undefined)?.labels ?? [];
  }

  /** How many numbers of a sample are encrypted. */
  get inputSize(): number {
    return sizeOf(this.inputShape);
  }

  /**
   * Samples as the numbers [samples, *inputShape] that are encrypted; of a model of several inputs, arrays by name or a list of them in the
   * model's order. Values beyond the calibrated range count as its end; one warning says how many and in which columns. Values that the steps do not
   * take count as the nearest that they take, and missing ones as 0; another warning says so. Nothing is refused for its values: the server, which
   * chose the steps, would learn of them from the request that it does not get.
   *
   * ShapeError: no samples, another shape.
   */
  inputs(x: Given, { onWarning = warnOnConsole }: InputOptions = {}): Tensor {
    const [report, unfit] = [new RangeReport(), new Unfit()];
    const finite = (numbers: Tensor): Tensor => unfit.withoutMissing(unfit.withoutInfinite(numbers));
    const made = runInputSteps(this.#inputSteps, this.#inputSteps.first === null ? finite(unfit.numbers(x)) : x, unfit, report);
    unfit.at((numbers) => columnLabels(this.#inputSteps.steps, numbers));
    const found = finite(made);
    if (found.shape.length === 0 || found.shape.slice(1).join() !== this.inputShape.join())
      throw new ShapeError(
        `input: expected an array of shape [${["'samples'", ...this.inputShape].join(", ")}], got [${found.shape.join(", ")}]; samples come first`,
      );
    if (found.shape[0] === 0) throw new ShapeError("input: expected at least one sample, got none");
    const [low, high] = this.inputRange;
    const slack = SLACK * (high - low);
    const outside = (value: number): boolean => value < low - slack || value > high + slack;
    report.add(found, outside, () => columnLabels(this.#inputSteps.steps, found));
    for (const { warning } of [report, unfit]) if (warning !== null) onWarning(warning);
    return { shape: found.shape, data: found.data.map((value) => clip(value, low, high)) };
  }

  /** Encrypted samples, seeded and packed, about four bytes for a number; for this program alone. */
  encrypt(key: ClientKey, x: Given, options: InputOptions = {}): Uint8Array {
    return this.encryptInputs(key, this.inputs(x, options));
  }

  /** Size of the largest answer for so many samples. */
  mostResultBytes(samples: number): number {
    return mostResultBytes(this.parameters, Math.ceil(samples / this.parameters.laneCount) * this.#outputScale.data.length);
  }

  /** Samples of one request: as many as fit the memory of a small machine, with their answer. */
  get mostSamples(): number {
    const { polynomialSize, largeWords, memoryBytes, laneCount } = this.parameters;
    const packed = Math.ceil(this.inputSize / polynomialSize) * polynomialSize;
    const words = packed + this.#outputScale.data.length * largeWords;
    return Math.max(1, Math.floor(MOST_BATCH_BYTES / (words * memoryBytes))) * laneCount;
  }

  /** Before it is unpacked: whether a result has as many numbers as the samples ask for. */
  checkResult(engine: Engine, result: Uint8Array, samples: number): void {
    const { parameters, shape: extents } = readHeader(engine, result, [CIPHERTEXTS, PACKED_CIPHERTEXTS, SWITCHED_CIPHERTEXTS]);
    const [rows, outputs] = [Math.ceil(samples / this.parameters.laneCount), this.#outputScale.data.length];
    if (parameters.name !== this.parameters.name)
      throw new KeyMismatchError(`result: expected parameter set '${this.parameters.name}', got '${parameters.name}'`);
    if (sizeOf(extents) !== rows * outputs)
      throw new ShapeError(
        `result: expected ${outputs} numbers for each of ${samples} samples, got [${extents.join(", ")}]; it is of another model`,
      );
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
          phases[i] = this.#phase(values.data[Math.min(row * lanes + lane, samples - 1) * numbers + number] as number);
    return key.encryptTorus(phases, { form: "packed", shape: [rows, numbers], purpose: this.program });
  }

  /** Ends of the range may be beyond what is encrypted, by rounding. */
  #phase(value: number): number {
    return clip(value * this.#inputScale, -MOST_PHASE, MOST_PHASE);
  }

  /**
   * The model's output from a service's answer, the final steps (softmax, arg-max) included. `until`: models of tables can stop at "scores" or
   * "probabilities". `samples`: how many were encrypted, for sets of several lanes.
   */
  async decrypt(
    key: ClientKey,
    result: Uint8Array,
    { until = "labels", samples }: { until?: Stage; samples?: number } = {},
  ): Promise<Answer> {
    this.#checkKey(key);
    const found = await key.answerPhases(result);
    const { header } = found;
    if (header.purpose === null || !equalBytes(header.purpose, this.program))
      throw new KeyMismatchError(
        `result: expected ciphertexts for program ${hexadecimal(this.program).slice(0, 16)}, got some for ` +
          `${header.purpose === null ? "none" : hexadecimal(header.purpose).slice(0, 16)}; decrypt it with the client specification of its model`,
      );
    const [lanes, outputs] = [key.parameters.laneCount, this.#outputScale.data.length];
    const values = settled(key.parameters, key.decode(found), this.#outputUnit, header.wordBits);
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
    return this.output({ shape: [count, outputs], data: phases }, until);
  }

  /** Phases [samples, numbers] as the model's output. ShapeError: the numbers are not this model's. */
  output(phases: Tensor, until: Stage = "labels"): Answer {
    const [scale, offset] = [this.#outputScale, this.#outputOffset.data];
    const [count, outputs] = [phases.shape[0] ?? 0, scale.data.length];
    if (phases.shape.length === 0 || phases.data.length !== count * outputs)
      throw new ShapeError(
        `output: expected an array of shape ['samples', ${outputs}], got [${phases.shape.join(", ")}]; it is of another model`,
      );
    const data = phases.data.map((phase, i) => phase / (scale.data[i % outputs] as number) + (offset[i % outputs] as number));
    return this.#finish({ shape: [count, ...scale.shape], data }, until);
  }

  /** Values of the graph's output as the model's. */
  #finish(values: Tensor, until: Stage): Answer {
    const [scale, offset, unit] = [this.#outputScale.data, this.#outputOffset.data, this.#outputUnit];
    const rounded = (value: number, i: number): number => {
      const [s, o] = [scale[i % scale.length] as number, offset[i % scale.length] as number];
      return roundHalfEven((value - o) * (s / unit)) * (unit / s) + o;
    };
    return runOutputSteps(this.#outputSteps, unit > 0 ? { shape: values.shape, data: values.data.map(rounded) } : values, until);
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
