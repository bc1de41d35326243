"""Attacks on LWE with a block-binary small key: what estimate_security.py asks lattice-estimator for `block_l`.

A block of l coefficients is zero or has a single 1, all l + 1 values as likely. No estimator knows such secrets, so each attack is told of the
structure wherever we know how to use it:

1. Lattices see an ellipsoid. A block has the covariance p I - p^2 J, p = 1/(l + 1), J all ones, with determinant (l + 1)^-(l + 1): an attacker who
   scales the lattice by it faces the volume of independent coefficients with standard deviation (l + 1)^(-(l + 1) / 2l), which is 1/2 for l = 1.
   Primal and dual attacks get that in place of the coefficients' own sqrt(p (1 - p)).
2. Guesses are of whole blocks: t coefficients have (l + 1)^(t/l) values, not 2^t, in the dual hybrid attack that enumerates (`enumeration`) and in the
   one that enumerates and transforms (`dual_hybrid`). All values are as likely, so that none of the latter's overhead for guesses in the order of a
   Gaussian is left.
3. `block_transform` is `dual_hybrid` with a transform at p^(t h), h = log2(l + 1) / l, in place of p^t: as if a transform could be had for the
   values of blocks alone. We know none (folded block by block, the table of samples is no smaller than p^t until as many coefficients are done as the number of samples has bits), so this
   attack is hypothetical, and rows need four bits less against it.
4. `meet_in_the_middle` and `nearest_planes` guess halves of the blocks at the square root of their number and find near collisions; `meet_lwe` represents
   the key as a sum in many ways (meet_in_the_middle.py). They take 136, 132 and 139 bits where `enumeration` takes 145 (n = 864, sigma 7.33).

For l = 1 this is the estimator's model of a binary secret but for the order of guesses: 129.4 bits where the estimator says 132.3 (n = 640, sigma 6.48).

Not covered: attacks that use s_i s_j = 0 and s_i^2 = s_i as equations. No estimator has them.

Source: [LMSS23] the secret, and hybrid attacks on it; [MATZOV22] the transform. Ours: the ellipsoid's volume.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any


def effective_deviation(length: int) -> float:
    """Standard deviation of independent coefficients whose ellipsoid has the volume of the blocks': (l + 1)^(-(l + 1) / 2l)."""
    return float((length + 1) ** (-(length + 1) / (2 * length)))


def guess_bits(length: int) -> float:
    """log2(l + 1) / l: of guessing a coefficient, block by block."""
    return math.log2(length + 1) / length


@cache
def _distribution(length: int) -> type:
    from estimator.nd import NoiseDistribution
    from sage.all import RR

    class Blocks(NoiseDistribution):  # type: ignore[misc]
        """What the estimator is told of the secret. Not "sparse": its sparse attacks would take the ones for independent."""

        def __init__(self, n: int | None = None) -> None:
            super().__init__(n=n, mean=RR(1 / (length + 1)), stddev=RR(effective_deviation(length)), bounds=(0, 1), _density=1.0)

        def resize(self, new_n: int) -> Any:
            return Blocks(new_n)

        def support_size(self, fraction: float = 1.0) -> Any:
            return RR(fraction) * RR(2) ** (guess_bits(length) * len(self))

        def __hash__(self) -> int:
            return hash((length, self.n))

    return Blocks


@cache
def _transform_attack(length: int, transform_bits: float) -> type:
    """The estimator's dual hybrid attack: guesses at the price of blocks, the transform of t coefficients modulo p at p^(t transform_bits)."""
    from estimator.lwe_dual import MATZOV
    from sage.all import RR

    class OnBlocks(MATZOV):  # type: ignore[misc]
        @staticmethod
        def Hf(Xs: Any) -> Any:  # noqa: N802 (the estimator's names)
            """log2 of the guesses per coefficient, less what `cost` adds to it for the order of a Gaussian's."""
            alpha = (math.pi * float(Xs.stddev)) ** 2
            order = 8 * alpha * math.exp(-2 * alpha) * math.tanh(alpha) / math.log(2)
            return RR(guess_bits(length) - (order + 1 - 0.5 / math.log(2)))

        @classmethod
        def T_fftf(cls, k: int, p: int) -> Any:  # noqa: N802
            return cls.C_mul * k * RR(p) ** (transform_bits * k + 1)

        @classmethod
        def Nf(cls, params: Any, m: int, beta_bkz: int, beta_sieve: int, k_enum: int, k_fft: int, p: int) -> Any:  # noqa: N802
            """Samples for as many guesses as there are, instead of the estimator's number of them."""
            samples = super().Nf(params, m, beta_bkz, beta_sieve, k_enum, k_fft, p)
            counted = float(k_enum * cls.Hf(params.Xs) + k_fft * math.log(p) + math.log(2))
            return samples * (math.log(2) * k_enum * guess_bits(length) + k_fft * transform_bits * math.log(p) + math.log(2)) / counted

    return OnBlocks


def estimate(length: int, dimension: int, modulus: int, sigma: float) -> dict[str, float]:
    """log2 of the operations of each attack."""
    import meet_in_the_middle
    from estimator import LWE, ND, RC
    from estimator.lwe_dual import dual_hybrid
    from sage.all import oo

    secret, error = _distribution(length)(), ND.DiscreteGaussian(sigma)
    problem = LWE.Parameters(n=dimension, q=modulus, Xs=secret, Xe=error, m=oo)
    attacks = {
        "usvp": LWE.primal_usvp,
        "bdd": LWE.primal_bdd,
        "enumeration": dual_hybrid,
        "dual_hybrid": _transform_attack(length, 1.0)(),
        "block_transform": _transform_attack(length, guess_bits(length))(),
    }
    costs = {name: attack(problem, red_cost_model=RC.MATZOV) for name, attack in attacks.items()}
    bits = {name: math.log2(float(cost["rop"])) for name, cost in costs.items()}
    return {**bits, **meet_in_the_middle.estimate(f"block_{length}", dimension, modulus, sigma)}
