"""The calibrators and the histogram once more, as their definitions read: slow, and without running sums."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

BINS, LEVELS, STEPS, CANDIDATES = 4096, 128, 127, 1024
NEARLY = 1e-9


def histogram(values: np.ndarray) -> tuple[int, list[int]]:
    """The exponent of the width, and the elements in each bin, in exact arithmetic, one by one."""
    exact = [abs(Fraction(float(v))) for v in values.reshape(-1) if v != 0]
    if not exact:
        return -1022, []
    exponent = -1022
    while max(exact) > BINS * Fraction(2) ** exponent:
        exponent += 1
    counts = [0] * math.ceil(max(exact) / Fraction(2) ** exponent)
    for value in exact:
        counts[math.ceil(value / Fraction(2) ** exponent) - 1] += 1
    return exponent, counts


def candidates(bins: int) -> list[int]:
    return [*range(LEVELS, bins, -(-bins // CANDIDATES)), bins]


def best(costs: dict[int, float]) -> int:
    least = min(costs.values())
    return max(bins for bins, cost in costs.items() if cost <= least + NEARLY * max(1.0, abs(least)))


def divergence(counts: np.ndarray, bins: int) -> float:
    """KL(P || Q) of the reference distribution and the one that 128 levels can tell, bins beyond being clipped."""
    reference = counts[:bins].astype(np.float64)
    reference[-1] += counts[bins:].sum()
    quantized = np.zeros(bins)
    for level in range(LEVELS):
        part = slice(level * bins // LEVELS, (level + 1) * bins // LEVELS)
        filled = reference[part] > 0
        if filled.any():
            quantized[part][filled] = counts[part].sum() / filled.sum()
    if not quantized.any():
        return math.inf
    p, q = reference / reference.sum(), quantized / quantized.sum()
    if (q[p > 0] == 0).any():
        return math.inf
    return float((p[p > 0] * np.log(p[p > 0] / q[p > 0])).sum())


def squared_error(counts: np.ndarray, bins: int) -> float:
    """Of rounding the middles of the bins to steps of bins / 127, clipped; relative to that of rounding to zero."""
    middles = np.arange(len(counts)) + 0.5
    rounded = np.minimum(np.floor(middles * STEPS / bins + 0.5), STEPS) * bins / STEPS
    return float((counts * (middles - rounded) ** 2).sum() / (counts * middles**2).sum())


def mse_bins(counts: np.ndarray) -> int:
    return best({bins: squared_error(counts, bins) for bins in candidates(len(counts))})


def entropy_bins(counts: np.ndarray) -> int:
    unclipped = squared_error(counts, len(counts))
    tried = candidates(len(counts))
    return best(
        {b: divergence(counts, b) if squared_error(counts, b) <= unclipped + NEARLY else math.inf for b in tried}
    )


def percentile_bins(counts: np.ndarray, percentile: float) -> int:
    wanted = Fraction(percentile) / 100 * int(counts.sum())
    inside = 0
    for bins, number in enumerate(counts.tolist(), 1):
        inside += number
        if inside >= wanted:
            return bins
    raise AssertionError
