"""Runs lattice-estimator: fills security_estimates.json for the shipped rows, and recomputes points of security_curves.json.

    python fhe_core/tools/estimate_security.py                     # rows of the table that have no stored estimate
    python fhe_core/tools/estimate_security.py --all               # everything stored again; prints what changed
    python fhe_core/tools/estimate_security.py --problem "gaussian 592 16777216 1208.55"   # one of them, as its key in security_estimates.json
    python fhe_core/tools/estimate_security.py --table             # what is stored, as the table of docs/reference/parameters.md: needs no Sage
    python fhe_core/tools/estimate_security.py --point SECRET DIMENSION MODULUS BITS GUESS
                                                                   # log2(sigma/q) that has these bits, for security_curves.json

Needs Sage (passagemath-standard-no-symbolics and passagemath-symbolics from PyPI do) and lattice-estimator at the commit named in
security_curves.json, on PYTHONPATH. About six seconds per problem, a minute and more with a block-binary secret (block_security.py).

Source: [APS15], of which lattice-estimator is the successor; [MATZOV22] the cost model.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import math
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import block_security
import meet_in_the_middle
import parameter_search as search

ESTIMATES = search.HERE / "security_estimates.json"
LEVELLED = {12: 3, 13: 7, 14: 14, 15: 29, 16: 59}  # log2 N -> primes of keys, of fhe_core/levelled/parameters.py
BOUNDS = {"binary": (0, 1), "ternary": (-1, 1), "quinary": (-2, 2)}


def estimate(secret: str, dimension: int, modulus: int, sigma: float) -> dict[str, float | None]:
    """log2 of the cost of each attack, in operations (`rop`); None where the estimator finds no parameters with which it succeeds.

    `ntru_SECRET`: numerators of this sigma divided by a ring key of that distribution.
    """
    warnings.filterwarnings("ignore")
    from estimator import LWE, ND, RC
    from sage.all import oo

    logging.disable(logging.CRITICAL)
    if secret.startswith("ntru_"):
        costs = ntru_costs(secret.removeprefix("ntru_"), dimension, modulus, sigma)
    elif secret.startswith("block_"):
        return rounded(block_security.estimate(int(secret.removeprefix("block_")), dimension, modulus, sigma))
    else:
        small = ND.DiscreteGaussian(search.GAUSSIAN_SECRET_SIGMA) if secret == "gaussian" else ND.Uniform(*BOUNDS[secret])
        problem = LWE.Parameters(n=dimension, q=modulus, Xs=small, Xe=ND.DiscreteGaussian(sigma), m=oo)
        attacks = {"usvp": LWE.primal_usvp, "bdd": LWE.primal_bdd, "dual_hybrid": LWE.dual_hybrid}
        costs = {name: attack(problem, red_cost_model=RC.MATZOV) for name, attack in attacks.items()}
    bits = {name: math.log2(float(cost["rop"])) for name, cost in costs.items()}
    return rounded({**bits, **meet_in_the_middle.estimate(secret, dimension, modulus, sigma)})


def rounded(bits: dict[str, float]) -> dict[str, float | None]:
    return {name: round(attack_bits, 2) if math.isfinite(attack_bits) else None for name, attack_bits in bits.items()}


def ntru_costs(secret: str, dimension: int, modulus: int, sigma: float) -> dict[str, dict[str, float]]:
    """Attacks on h = g/f modulo X^N + 1 and the modulus. dsd, the dense sublattice of overstretched moduli, the estimator has for f and g of one
    deviation alone: both get the smaller, a lower bound. It wants the Z-shape: of the GSA, whose first vectors would be longer than the modulus, it
    takes more.

    Source: [DvW21] the dense sublattice.
    """
    from estimator import ND, NTRU, RC

    small, noise = ND.Uniform(*BOUNDS[secret]), ND.DiscreteGaussian(sigma)
    least = ND.DiscreteGaussian(min(float(small.stddev), sigma))
    ring = {"n": dimension, "q": modulus, "m": dimension, "ntru_type": "circulant"}
    problem, narrow = NTRU.Parameters(Xs=small, Xe=noise, **ring), NTRU.Parameters(Xs=least, Xe=least, **ring)
    return {
        "usvp": NTRU.primal_usvp(problem, red_cost_model=RC.MATZOV),
        "bdd": NTRU.primal_bdd(problem, red_cost_model=RC.MATZOV),
        "dsd": NTRU.primal_dsd(narrow, red_cost_model=RC.MATZOV, red_shape_model="zgsa"),
    }


def find_point(secret: str, dimension: int, modulus: int, target: int, guess: float) -> tuple[float, float]:
    """(log2(sigma/q), bits) close to the target, by the secant method."""
    tried = []
    log2_alpha = guess
    for _ in range(4):
        bits = search.least_bits(estimate(secret, dimension, modulus, modulus * 2**log2_alpha))
        tried.append((log2_alpha, bits))
        if abs(bits - target) < 0.05:
            break
        first, *others = sorted(tried, key=lambda point: abs(point[1] - target))
        slope = (first[1] - others[0][1]) / (first[0] - others[0][0]) if others else target**2 / (3.49 * dimension)
        log2_alpha = first[0] + (target - first[1]) / (slope or 1.0)
    return min(tried, key=lambda point: abs(point[1] - target))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="estimate everything stored again")
    parser.add_argument("--table", action="store_true", help="print the table of all sets and attacks")
    parser.add_argument("--problem", metavar="KEY", help="estimate one stored problem again")
    parser.add_argument("--point", nargs=5, metavar=("SECRET", "DIMENSION", "MODULUS", "BITS", "GUESS"))
    arguments = parser.parse_args()
    if arguments.table:
        print(table(search.find_rows()), end="")
        return 0
    if arguments.point:
        secret, dimension, modulus, target, guess = arguments.point
        print(*find_point(secret, int(dimension), int(modulus), int(target), float(guess)))
        return 0
    again = set(search.ESTIMATES) if arguments.all else {arguments.problem} if arguments.problem else set()
    while missing := sorted(again or wanted() - search.ESTIMATES.keys()):
        again = set()
        for key in missing:
            secret, dimension, modulus, sigma = key.split()
            before, bits = search.ESTIMATES.get(key), estimate(secret, int(dimension), int(modulus), float(sigma))
            print(key, bits, "" if before in (None, bits) else f"was {before}", flush=True)
            search.ESTIMATES[key] = bits
            write(search.ESTIMATES)
    return 0


FAMILIES = {
    "primal": ("usvp", "bdd"),
    "dual hybrid": ("dual_hybrid", "enumeration"),
    "`nearest_planes`": ("nearest_planes",),
    "`meet_in_the_middle`": ("meet_in_the_middle",),
    "others": ("meet_lwe", "dsd"),
}


def table(rows: Iterable[search.Row]) -> str:
    """Lists each set's least bits by kind of attack, over all of its problems. Sets of the same numbers share a line."""
    problems = {row.name: search.row_instances(row) for row in rows if not search.is_toy(row)}
    for log_size, count in LEVELLED.items():
        problems[f"bgv{log_size}"] = (search.estimate_key("ternary", 1 << log_size, levelled_modulus(log_size, count), search.SIGMA_FLOOR),)
    lines: dict[str, list[str]] = {}
    for name, instances in problems.items():
        stored = [search.ESTIMATES[instance] for instance in instances]
        cells = []
        for attacks in FAMILIES.values():
            bits = [attack_bits for estimate in stored for attack in attacks if (attack_bits := estimate.get(attack)) is not None]
            cells.append(f"{math.floor(10 * min(bits)) / 10:.1f}" if bits else "")
        lines.setdefault(" | ".join(cells), []).append(f"`{name}`")
    heading = f"| sets | {' | '.join(FAMILIES)} |\n|{'---|' * (len(FAMILIES) + 1)}\n"
    return heading + "".join(f"| {', '.join(names)} | {cells} |\n" for cells, names in lines.items())


def wanted() -> set[str]:
    """Both problems of every shipped row, and keys of levelled arithmetic; a row whose estimate falls short moves on, so this changes with what is
    stored."""
    search.cached_lwe_sigma.cache_clear()
    rows = {key for row in search.find_rows() if not search.is_toy(row) for key in search.row_instances(row)}
    return rows | {f"ternary {1 << log_size} {levelled_modulus(log_size, count)} 3.19" for log_size, count in LEVELLED.items()}


def levelled_modulus(log_size: int, count: int) -> int:
    """The product of the largest primes below 2^28 that are 1 modulo 2N."""
    step = 2 << log_size
    candidates = range((1 << 28) - step + 1, 1 << 26, -step)
    primes = (q for q in candidates if all(q % d for d in range(3, math.isqrt(q) + 1, 2)))
    return math.prod(itertools.islice(primes, count))


def write(estimates: dict[str, dict[str, float | None]]) -> None:
    """One line per problem."""
    estimator = search.CURVES["estimator"]
    lines = ",\n".join(f"    {json.dumps(key)}: {json.dumps(values)}" for key, values in sorted(estimates.items()))
    key = json.dumps("secret dimension modulus sigma, with sigma in units of 1/modulus")
    ESTIMATES.write_text(
        f'{{\n  "estimator": {json.dumps(estimator)},\n  "key": {key},\n  "unit": "log2 of operations; null: no attack of this kind succeeds",\n'
        f'  "estimates": {{\n{lines}\n  }}\n}}\n'
    )


if __name__ == "__main__":
    sys.exit(main())
