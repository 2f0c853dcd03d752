"""Named, stateless random streams.

A random draw is identified by the seed, a purpose, the client or link, and the round or sequence
number. It therefore does not depend on earlier draws, and two runs that differ only in their method
have the same delays, losses, shards and attackers.

>>> stream = Streams(seed=1).key("latency", 3, 4)
>>> uniform(stream, 0) == uniform(stream, 0) != uniform(stream, 1)
True
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from math import exp, log
from statistics import NormalDist

import numpy as np

_MASK = (1 << 64) - 1
_normal_quantile = NormalDist().inv_cdf


@dataclass(frozen=True)
class Streams:
    """All random streams of a run."""

    seed: int

    def key(self, purpose: str, *index: int) -> int:
        """Return the 64-bit key of a stream."""
        name = "/".join([str(self.seed), purpose, *map(str, index)])
        return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")

    def generator(self, purpose: str, *index: int) -> np.random.Generator:
        """Return a numpy generator at the start of a stream."""
        return np.random.Generator(np.random.PCG64(self.key(purpose, *index)))


def uniform(key: int, counter: int) -> float:
    """Return draw number `counter` of the stream `key`, uniform in the open interval (0, 1).

    The generator is wyrand (Wang Yi, wyhash, 2019): a single wide product, which is fast with Python's
    integers. The result is the midpoint of one of 2^52 cells, so that 0 and 1 never occur and every
    quantile function is finite.
    """
    state = (key + (counter + 1) * 0xA0761D6478BD642F) & _MASK
    product = state * (state ^ 0xE7037ED1A0B428DB)
    return ((((product >> 64) ^ product) & _MASK) >> 12) * 2.0**-52 + 2.0**-53


def exponential_quantile(u: float, mean: float) -> float:
    """Return the quantile of the exponential distribution, which needs one uniform draw."""
    return -mean * log(1.0 - u)


def lognormal_quantile(u: float, median: float, sigma: float) -> float:
    """Return the quantile of the log-normal distribution: median exp(sigma z), z standard normal."""
    return median * exp(sigma * _normal_quantile(u))
