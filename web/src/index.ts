export { ClientKey, type EncryptOptions, type Form, type Phases } from "./client_key.js";
export { Engine, type EngineOptions, type Progress } from "./engine.js";
export * from "./errors.js";
export type { ScryptCost } from "./keystore.js";
export { parameterSet, type ParameterSet } from "./parameters.js";
export { Encoding, type Header } from "./wire.js";
export { type Answer, type Stage } from "./output_steps.js";
export { ClientSpecification } from "./specification.js";
export { type Samples, type Tensor, tensor } from "./arrays.js";
