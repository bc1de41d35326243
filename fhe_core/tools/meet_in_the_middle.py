"""Attacks that meet in the middle, which lattice-estimator has for no key of the shipped sets. Pure Python: a test recomputes what is stored of them.

**Collisions** (`collisions`): a dual hybrid attack with noisy collisions.

1. Lattice reduction of block size beta turns LWE into samples of the t guessed coefficients alone, b = <a, s> + e with e Gaussian of deviation alpha q.
   The dual lattice, its dimension and alpha are those of the estimator's `DualHybrid.dual_reduce`; the cost is that of its `RC.MATZOV.short_vectors`.
   A sieve finds far more short vectors than the SAMPLES used; the longest of these is SAMPLES^(1/beta) times the shortest.
2. The guessed coefficients are halves u and v of T values each. For the right pair A u and b - A v differ by e in each sample. To find it, both lists
   are hashed by kappa samples, each cut into w intervals with a random offset, w^kappa = T. The right pair shares an interval with probability
   p1 = E max(0, 1 - |e| w / q), so p1^-kappa hashes find it.
3. Cost: lattice reduction + 2 T p1^-kappa 2 kappa operations. T words of memory are not charged.

A key of small entropy loses by it: blocks of eight have 0.396 bits a coefficient. A binary key has more than the lattice makes up for.

**Nearest planes** (`nearest_planes`): the same in the primal lattice, 3 bits cheaper for blocks of eight than collisions of samples.

1. A basis of the other coefficients and as many samples as suit them is reduced once, so that the last Gram-Schmidt vectors are long: its dual is
   reduced, and they follow the line of the GSA.
2. Both lists are points A u and b - A v, reduced by nearest planes along the last j vectors alone. What is left of each lies in a box, which is cut into
   cells of one width g, at a random offset: T cells in all. The right pair differs by the noise, of deviation 1 in each direction of the scaled lattice,
   and shares a cell with probability p1^j, p1 = E max(0, 1 - |e| / g). So p1^-j offsets find it; the basis stays. Pairs that share a cell are told
   apart by the other planes, if these hold the noise.
3. Cost: reduction + 2 T p1^-j j^2 / 2^1.06 operations, the estimator's price of nearest planes in j dimensions.

The estimator's primal hybrid repeats the reduction with each trial, takes all d planes and rounds without cells, or (its default) takes the pair for found
with certainty, which it marks as not analysed: 129.7 and 106.7 bits at n = 784.

**Representations** (`representations`): meet-LWE, without lattices. The key is a sum of two vectors in many ways, of which one suffices: a block e_i is
e_i + 0, e_j + (e_i - e_j) or -e_j + (e_i + e_j), a block of zeros e_i - e_i and so on. TREE has the shares of these in two levels; the vectors of the lower
level are split into halves of their blocks. A condition on A x of as many bits as there are representations leaves one. Samples have 13 bits and more above
their noise, so that conditions take the high bits of a few samples and noise costs nothing. Entropies stand for multinomials, and the time is two lists as
long as the longest: both in the attacker's favour.

Not counted: near-neighbour searches with better exponents than intervals, whose overheads eat the gain at sixty samples; 4 bits of margin are for such. Representations inside the first attack gain nothing: conditions on noisy samples have to be narrow to be joined, and narrow ones miss the right pair
(at least 1.95 bits a block where halves take 1.92, at the noise of n = 784).

Source: [CHHS19] dual attacks with noisy collisions; [MATZOV22] the cost of reduction; [May21] meet-LWE. Ours: the intervals, the tree for blocks.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

SAMPLES = 300
MOST_NOISE = 0.25  # of alpha: beyond it samples tell nothing
INTERVALS = (2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512)
BLOCK_SIZES = range(60, 1600)
SIEVE_RATE, SIEVE_START = 0.29613500308205365, 20.387885985467914  # RC.MATZOV, "list_decoding-classical"
PROGRESSIVE = 1 / (1 - 2**-SIEVE_RATE)


@dataclass(frozen=True)
class Secret:
    """What these attacks ask of a distribution: the deviation that a lattice sees, bits of a guessed coefficient, coefficients guessed at a time."""

    deviation: float
    bits: float
    step: int = 1


@dataclass(frozen=True)
class Planes:
    """The cheapest attack: log2 of operations, guessed coefficients t, block size beta, log2 T, planes j, log2 of a cell's width g in deviations."""

    bits: float
    guessed: int
    block_size: int
    table_bits: float
    planes: int
    cell_log2: float


@dataclass(frozen=True)
class Collisions:
    """The cheapest attack: log2 of operations, guessed coefficients t, block size beta, log2 T, alpha, intervals w, hashed samples kappa."""

    bits: float
    guessed: int
    block_size: int
    table_bits: float
    noise: float
    intervals: int
    hashed: float


Attack = TypeVar("Attack", Collisions, Planes)


def secret_of(name: str) -> Secret:
    """By the names of security_estimates.json; the numerators of `ntru_` problems are the noise, its denominators the secret."""
    if name.startswith("block_"):
        length = int(name.removeprefix("block_"))
        return Secret((length + 1) ** (-(length + 1) / (2 * length)), math.log2(length + 1) / length, length)
    uniform = {"binary": 2, "ternary": 3, "quinary": 5}
    values = uniform.get(name.removeprefix("ntru_"))
    if values is None:  # "gaussian", of deviation 1
        return Secret(1.0, math.log2(math.sqrt(2 * math.pi * math.e)))
    return Secret(math.sqrt((values**2 - 1) / 12), math.log2(values))


# Lattices


def root_hermite_log2(block_size: int) -> float:
    """log2 of delta, of which a reduced basis has its shortest vector delta^d times the volume's root."""
    scale = block_size / (2 * math.pi * math.e)
    return math.log2(scale * (math.pi * block_size) ** (1 / block_size)) / (2 * (block_size - 1))


@cache
def reduction_operations(block_size: int, dimension: int) -> float:
    """Returns the operations of reducing a basis."""
    calls = PROGRESSIVE * max(dimension - block_size, 1)
    return dimension**3 + calls * PROGRESSIVE * 2 ** (SIEVE_RATE * (block_size - free_dimensions(block_size)) + SIEVE_START)


def free_dimensions(block_size: int) -> float:
    return max(block_size * math.log(4 / 3) / math.log(block_size / (2 * math.pi * math.e)), 0.0)


@cache
def samples_log2(block_size: int, dimension: int) -> float:
    """log2 of the operations that find SAMPLES short vectors: reduction, and a sieve of the dimension that takes as long."""
    sieve = block_size - math.floor(free_dimensions(block_size))
    if block_size < dimension:
        sieve = min(dimension, math.floor(sieve + math.log2((dimension - block_size) * PROGRESSIVE) / SIEVE_RATE))
    rounds = math.ceil(SAMPLES / math.floor(2 ** (0.2075 * sieve)))
    return math.log2(rounds * (reduction_operations(block_size, dimension) + PROGRESSIVE * 2 ** (SIEVE_RATE * sieve + SIEVE_START)))


def dual_noise(block_size: int, dimension: int, deviation: float, modulus: int, sigma: float) -> tuple[float, int]:
    """(log2 of alpha, dimension of the lattice) of samples in which `dimension` coefficients of this deviation are gone."""
    growth, ratio = root_hermite_log2(block_size), math.log2(modulus) + math.log2(deviation / sigma)
    samples = max(1, math.ceil(math.sqrt(dimension * ratio / growth)) - dimension)
    lattice = samples + dimension
    longest = math.log2(SAMPLES) / block_size
    return longest + math.log2(deviation) + growth * lattice - ratio * samples / lattice, lattice


# Collisions


def collision_probability(alpha: float, intervals: int) -> float:
    """E max(0, 1 - |e| w) of a Gaussian e of deviation alpha."""
    reach = 1 / (alpha * intervals)
    return math.erf(reach / math.sqrt(2)) - math.sqrt(2 / math.pi) / reach * -math.expm1(-(reach**2) / 2)


def best_hash(alpha: float, table_bits: float) -> tuple[float, int, float]:
    """(log2 of operations, w, kappa)."""

    def cost(intervals: int) -> tuple[float, int, float]:
        hashed = table_bits / math.log2(intervals)
        rounds = -hashed * math.log2(collision_probability(alpha, intervals))
        return table_bits + rounds + 1 + math.log2(2 * max(1.0, hashed)), intervals, hashed

    return min(map(cost, (w for w in INTERVALS if collision_probability(alpha, w) > 1e-9)))


def collisions_of(secret: Secret, dimension: int, modulus: int, sigma: float, guessed: int) -> Collisions:
    """Finds the cheapest block size for this many guessed coefficients."""
    table_bits = secret.bits * guessed / 2

    def attack(block_size: int) -> tuple[float, float, Collisions]:
        alpha_log2, lattice = dual_noise(block_size, dimension - guessed, secret.deviation, modulus, sigma)
        if alpha_log2 > math.log2(MOST_NOISE):
            return -1.0, math.inf, Collisions(math.inf, guessed, block_size, table_bits, 1.0, 0, 0.0)
        alpha = max(2**alpha_log2, 1e-6)
        hashing, intervals, hashed = best_hash(alpha, table_bits)
        lattices = samples_log2(block_size, lattice)
        return lattices, hashing, Collisions(sum_log2(lattices, hashing), guessed, block_size, table_bits, alpha, intervals, hashed)

    return at_balance(attack)


def collisions(secret: Secret, dimension: int, modulus: int, sigma: float) -> Collisions:
    """The cheapest attack over t, beta and w."""
    return best_guess(lambda guessed: collisions_of(secret, dimension, modulus, sigma, guessed), dimension, secret.step)


# Nearest planes


def planes_of(secret: Secret, dimension: int, modulus: int, sigma: float, guessed: int) -> Planes:
    """Finds the cheapest block size and number of planes for this many guessed coefficients."""
    table_bits, others = secret.bits * guessed / 2, dimension - guessed
    ratio = math.log2(modulus) + math.log2(secret.deviation / sigma)

    def attack(block_size: int) -> tuple[float, float, Planes]:
        growth = root_hermite_log2(block_size)
        lattice = max(math.ceil(math.sqrt(others * ratio / growth)), others + 1)
        volume = math.log2(modulus) - math.log2(sigma) - others * ratio / lattice  # of the scaled lattice: log2 of its root

        def hash_cost(planes: int) -> tuple[float, int, float]:
            """Returns the cost of planes that are all wider than a cell."""
            last, mean = volume - growth * lattice, volume - growth * (lattice - planes)
            cell = min(mean - table_bits / planes, 20.0)
            if cell < -1 or cell > last or planes > lattice:
                return math.inf, planes, cell
            success_log2 = planes * math.log2(collision_probability(2.0**-cell, 1))
            success_log2 += recognised_log2(volume - growth * (lattice - 2 * planes), growth)
            return table_bits + 1 + 2 * math.log2(planes) - 1.06 - success_log2, planes, cell

        hashing, planes, cell = min(map(hash_cost, range(20, 400, 10)))
        lattices = math.log2(reduction_operations(block_size, lattice))
        return lattices, hashing, Planes(sum_log2(lattices, hashing), guessed, block_size, table_bits, planes, cell)

    return at_balance(attack)


def recognised_log2(width_log2: float, growth: float) -> float:
    """log2 of the probability that planes from this width on, each delta^2 wider than the one before, hold the noise of the right pair."""
    probability_log2 = 0.0
    while width_log2 < 4:
        probability_log2 += math.log2(math.erf(2 ** (width_log2 - 1.5)))
        width_log2 += 2 * growth
    return probability_log2


def nearest_planes(secret: Secret, dimension: int, modulus: int, sigma: float) -> Planes:
    """The cheapest attack over t, beta, j and g."""
    return best_guess(lambda guessed: planes_of(secret, dimension, modulus, sigma, guessed), dimension, secret.step)


# Search


def sum_log2(first: float, second: float) -> float:
    return max(first, second) + math.log2(1 + 2 ** -abs(first - second)) if math.isfinite(first + second) else math.inf


def at_balance(attack: Callable[[int], tuple[float, float, Attack]]) -> Attack:
    """The cheapest block size. A lattice costs more with it and a hash less: where they meet, or one off."""
    low, high = BLOCK_SIZES[0], BLOCK_SIZES[-1]
    while high - low > 1:
        middle = (low + high) // 2
        lattices, hashing, _ = attack(middle)
        low, high = (middle, high) if lattices < hashing else (low, middle)
    return min((attack(size)[2] for size in range(low - 3, high + 4)), key=lambda found: found.bits)


def best_guess(attack: Callable[[int], Attack], dimension: int, step: int) -> Attack:
    """The cheapest number of guessed coefficients: coarsely, then step by step."""

    def best(counts: Iterable[int]) -> Attack:
        return min(map(attack, counts), key=lambda found: found.bits)

    wide = max(1, dimension // 40 // step) * step
    around = best(range(wide, dimension - 40, wide)).guessed
    return best(range(max(step, around - wide), min(around + wide, dimension - 40), step))


# Representations

Kind = tuple[int, int]  # how many ones and how many minus ones a block has
Pair = tuple[Kind, Kind]
ZERO, PLUS, MINUS, DIFFERENCE, SUM, OPPOSITE = (0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2)
TREE_LENGTH = 8
# By level and kind of block: shares of its decompositions, for blocks of eight. Any shares are an attack; these are the cheapest that a search found.
TREE: tuple[Mapping[Kind, Mapping[Pair, float]], ...] = (
    {
        ZERO: {(ZERO, ZERO): 0.8432, (MINUS, PLUS): 0.1426, (DIFFERENCE, DIFFERENCE): 0.0125, (OPPOSITE, SUM): 0.0017},
        PLUS: {(ZERO, PLUS): 0.8649, (PLUS, DIFFERENCE): 0.0987, (MINUS, SUM): 0.0364},
    },
    {
        ZERO: {(ZERO, ZERO): 0.9870, (MINUS, PLUS): 0.0130},
        PLUS: {(ZERO, PLUS): 0.9860, (PLUS, DIFFERENCE): 0.0140},
        MINUS: {(ZERO, MINUS): 0.9860, (MINUS, DIFFERENCE): 0.0140},
        DIFFERENCE: {(ZERO, DIFFERENCE): 0.7056, (MINUS, PLUS): 0.2858, (DIFFERENCE, DIFFERENCE): 0.0086},
        SUM: {(PLUS, PLUS): 1.0},
        OPPOSITE: {(MINUS, MINUS): 1.0},
    },
)


def blocks_of(kind: Kind, length: int) -> Iterator[tuple[int, ...]]:
    """All blocks of a kind."""
    for support in itertools.permutations(range(length), 2) if kind == DIFFERENCE else itertools.combinations(range(length), sum(kind)):
        signs = (1,) * kind[0] + (-1,) * kind[1]
        values = dict(zip(support, signs, strict=True))
        yield tuple(values.get(place, 0) for place in range(length))


@cache
def ways(kind: Kind, pair: Pair, length: int) -> int:
    """In how many ordered ways a block of this kind is a sum of two blocks of these kinds."""
    block = next(blocks_of(kind, length))
    count = 0
    for first, second in {pair, pair[::-1]}:
        others = set(blocks_of(second, length))
        count += sum(tuple(b - a for a, b in zip(part, block, strict=True)) in others for part in blocks_of(first, length))
    return count


def entropy(shares: Mapping[Kind, float], length: int) -> float:
    """Bits of a block whose kind has these probabilities, all blocks of a kind as likely."""
    return sum(share * math.log2(math.comb(length, sum(kind)) * math.comb(sum(kind), kind[0]) / share) for kind, share in shares.items() if share)


def descend(shares: Mapping[Kind, float], level: Mapping[Kind, Mapping[Pair, float]], length: int) -> tuple[dict[Kind, float], float]:
    """(kinds of the two parts of a block, bits of its decompositions)."""
    below: defaultdict[Kind, float] = defaultdict(float)
    bits = 0.0
    for kind, share in shares.items():
        for pair, part in level[kind].items():
            bits += share * part * math.log2(ways(kind, pair, length) / part)
            for half in pair:
                below[half] += share * part / 2
    return dict(below), bits


@dataclass(frozen=True)
class Representations:
    """log2 of operations, log2 of the longest list."""

    bits: float
    memory_bits: float


def representations(dimension: int) -> Representations:
    """Meet-LWE on blocks of eight by TREE."""
    length, blocks = TREE_LENGTH, dimension // TREE_LENGTH
    shares: dict[Kind, float] = {ZERO: 1 / (length + 1), PLUS: length / (length + 1)}
    entropies, conditions = [], []
    for level in TREE:
        shares, bits = descend(shares, level, length)
        entropies.append(entropy(shares, length))
        conditions.append(bits)
    upper, lower = (vectors - bits for vectors, bits in zip(entropies, conditions, strict=True))
    joined = 2 * lower - (conditions[0] - conditions[1])
    longest = blocks * max(upper, lower, joined, entropies[-1] / 2)
    return Representations(longest + 1, longest)


def estimate(secret: str, dimension: int, modulus: int, sigma: float) -> dict[str, float]:
    """Returns log2 of operations of each attack that knows what to do with such a secret."""
    problem = (secret_of(secret), dimension, modulus, sigma)
    bits = {"meet_in_the_middle": collisions(*problem).bits, "nearest_planes": nearest_planes(*problem).bits}
    if secret == f"block_{TREE_LENGTH}":
        bits["meet_lwe"] = representations(dimension).bits
    return bits
