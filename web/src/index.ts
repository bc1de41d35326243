export { ClientKey, type EncryptOptions, type Form, type Phases } from "./client_key.js";
export { Engine, type EngineOptions, type Progress } from "./engine.js";
export * from "./errors.js";
export type { ScryptCost } from "./keystore.js";
export { parameterSet, type ParameterSet } from "./parameters.js";
export { Encoding, type Header } from "./wire.js";
