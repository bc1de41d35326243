// Functions of single numbers that travel by name. Those of the C library (exp, log, sin, ..) agree with numpy's to some units in the last
// place: numpy's own differ by as much from one processor to the next.

import { remainder, roundHalfEven } from "./arrays.js";

export type OfOne = (x: number) => number;

const HALF_TURN = 180;
const SERIES_END = 6; // erf is 1 in double precision from here on

/** By the names of numpy: FUNCTIONS of models/client_steps/features.py. */
export const NUMPY_FUNCTIONS: Readonly<Record<string, OfOne>> = {
  absolute: Math.abs,
  arccos: Math.acos,
  arccosh: Math.acosh,
  arcsin: Math.asin,
  arcsinh: Math.asinh,
  arctan: Math.atan,
  arctanh: Math.atanh,
  cbrt: Math.cbrt,
  ceil: Math.ceil,
  cos: Math.cos,
  cosh: Math.cosh,
  deg2rad: (x) => x * (Math.PI / HALF_TURN),
  exp: Math.exp,
  exp2: (x) => 2 ** x,
  expm1: Math.expm1,
  fabs: Math.abs,
  floor: Math.floor,
  log: Math.log,
  log10: Math.log10,
  log1p: Math.log1p,
  log2: Math.log2,
  negative: (x) => -x,
  positive: (x) => x,
  rad2deg: (x) => x * (HALF_TURN / Math.PI),
  reciprocal: (x) => 1 / x,
  rint: roundHalfEven,
  sign: Math.sign,
  sin: Math.sin,
  sinh: Math.sinh,
  sqrt: Math.sqrt,
  square: (x) => x * x,
  tan: Math.tan,
  tanh: Math.tanh,
  trunc: Math.trunc,
  "logarithm of counts": (x) => (x !== 0 ? Math.log(x) + 1 : 0),
  "zero is missing": (x) => (x === 0 ? Number.NaN : x),
};

/** Of the operands, then the parameters. */
export type OfSeveral = (...values: number[]) => number;

export interface OnnxFunction {
  run: OfSeveral;
  /** Least and most. */
  operands: readonly [number, number];
  /** How many go with so many operands. */
  parameters: (operands: number) => number;
}

// By the names of ONNX: FUNCTIONS of models/graph/functions.py, but for those that no client gets (tables, bits of integers).
const RUNS: Readonly<Record<string, OfSeveral>> = {
  Identity: (x) => x as number,
  Affine: of3((x, scale, offset) => x * scale + offset),
  Abs: of1(Math.abs),
  Acos: of1(Math.acos),
  Acosh: of1(Math.acosh),
  Asin: of1(Math.asin),
  Asinh: of1(Math.asinh),
  Atan: of1(Math.atan),
  Atanh: of1(Math.atanh),
  Ceil: of1(Math.ceil),
  Celu: of2((x, alpha) => Math.max(x, 0) + Math.min(0, alpha * Math.expm1(x / alpha))),
  Clip: of3((x, low, high) => Math.min(Math.max(x, low), high)),
  Cos: of1(Math.cos),
  Cosh: of1(Math.cosh),
  Div: of2((x, y) => x / y),
  Elu: of2((x, alpha) => (x > 0 ? x : alpha * Math.expm1(Math.min(x, 0)))),
  Equal: of2((x, y) => Number(x === y)),
  Erf: of1(erf),
  Excess: of1((x) => Math.max(x, 0)),
  Exp: of1(Math.exp),
  Floor: of1(Math.floor),
  Fmod: of2((x, y) => x % y),
  Gate: (x, offset, opens, bound) => {
    const [value, most] = [(x as number) - (offset as number), bound as number];
    return (x as number) > (opens as number) ? Math.min(Math.max(value, -most), most) : 0;
  },
  Gelu: of1((x) => 0.5 * x * (1 + erf(x / Math.SQRT2))),
  GeluTanh: of1((x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)))),
  Greater: of2((x, y) => Number(x > y)),
  GreaterOrEqual: of2((x, y) => Number(x >= y)),
  HardSigmoid: of3((x, alpha, beta) => Math.min(Math.max(alpha * x + beta, 0), 1)),
  HardSwish: of1((x) => x * Math.min(Math.max(x / 6 + 0.5, 0), 1)),
  LeakyRelu: of2((x, alpha) => (x >= 0 ? x : alpha * x)),
  Less: of2((x, y) => Number(x < y)),
  LessOrEqual: of2((x, y) => Number(x <= y)),
  Log: of1(Math.log),
  Max: of2(Math.max),
  Min: of2(Math.min),
  Mod: of2(remainder),
  Mish: of1((x) => x * Math.tanh(softplus(x))),
  Mul: of2((x, y) => x * y),
  Not: of1((x) => Number(x === 0)),
  Pow: of2((x, y) => x ** y),
  QuantizeLinear: (x, scale, zero, low, high) => {
    const rounded = roundHalfEven((x as number) / (scale as number)) + (zero as number);
    return Math.min(Math.max(rounded, low as number), high as number);
  },
  Reciprocal: of1((x) => 1 / x),
  Relu: of1((x) => Math.max(x, 0)),
  // What integer kernels make of the accumulator x / unit: one product in float32.
  Requantize: (x, unit, multiplier, zero, low, high) => {
    const product = Math.fround(Math.fround(roundHalfEven((x as number) / (unit as number))) * Math.fround(multiplier as number));
    return Math.min(Math.max(roundHalfEven(product) + (zero as number), low as number), high as number);
  },
  Round: of1(roundHalfEven),
  Selu: of3((x, alpha, gamma) => gamma * (x > 0 ? x : alpha * Math.expm1(Math.min(x, 0)))),
  Sigmoid: of1((x) => 1 / (1 + Math.exp(-x))),
  Sign: of1(Math.sign),
  Sin: of1(Math.sin),
  Sinh: of1(Math.sinh),
  Softplus: of1(softplus),
  Softsign: of1((x) => x / (1 + Math.abs(x))),
  Sqrt: of1(Math.sqrt),
  Sum: (...values) => {
    const count = Math.floor(values.length / 2);
    let total = (values[0] as number) * (values[count] as number);
    for (let i = 1; i < count; ++i) total += (values[i] as number) * (values[count + i] as number);
    return total + (values.at(-1) as number);
  },
  Tan: of1(Math.tan),
  Tanh: of1(Math.tanh),
  ThresholdedRelu: of2((x, alpha) => (x > alpha ? x : 0)),
  Truncate: of1(Math.trunc),
  Where: of3((condition, x, y) => (condition !== 0 ? x : y)),
};

// Those that take several operands; all others take one, and the rest of their arguments are parameters.
const SEVERAL: Readonly<Record<string, [number, number, (operands: number) => number]>> = {
  Div: [2, 2, () => 0],
  Max: [1, 2, (operands) => 2 - operands],
  Min: [1, 2, (operands) => 2 - operands],
  Mul: [2, 2, () => 0],
  Sum: [2, 512, (operands) => operands + 1],
  Where: [3, 3, () => 0],
};

/** null for names that there are none of. */
export function onnxFunction(name: string): OnnxFunction | null {
  if (!Object.hasOwn(RUNS, name)) return null;
  const run = RUNS[name] as OfSeveral;
  const [least, most, parameters] = Object.hasOwn(SEVERAL, name)
    ? (SEVERAL[name] as [number, number, (operands: number) => number])
    : [1, 1, () => run.length - 1];
  return { run, operands: [least, most], parameters };
}

function of1(f: (x: number) => number): OfSeveral {
  return (x) => f(x as number);
}

function of2(f: (x: number, y: number) => number): OfSeveral {
  return (x, y) => f(x as number, y as number);
}

function of3(f: (x: number, y: number, z: number) => number): OfSeveral {
  return (x, y, z) => f(x as number, y as number, z as number);
}

function softplus(x: number): number {
  if (x === 0) return Math.LN2;
  return x > 0 ? x + Math.log1p(Math.exp(-x)) : Math.log1p(Math.exp(x));
}

/** 2 / sqrt(pi) e^(-x^2) sum 2^n x^(2n+1) / (1 3 .. (2n+1)): its terms have one sign, so that none cancel. */
function erf(x: number): number {
  if (Number.isNaN(x)) return x;
  if (Math.abs(x) >= SERIES_END) return Math.sign(x);
  let [term, sum] = [x, x];
  for (let n = 1; Math.abs(term) > Number.EPSILON * Math.abs(sum) * 0.25; ++n) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return Math.min(Math.max((2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum, -1), 1);
}
