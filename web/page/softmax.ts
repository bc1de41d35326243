// Scores that a model was trained to give as logarithms of odds, as probabilities.

/** exp(x_i) / sum exp(x_j), without overflow. */
export function softmax(scores: readonly number[]): number[] {
  const most = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - most));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}
