"""Where to clip a tensor: the ways to choose a threshold from its histogram.

Each looks at the absolute values other than zero and returns t: symmetric int8 then has 127 steps of t / 127 to each
side of zero, and what lies beyond t is clipped to it. Zeros have no say, since zero is exact whatever the scale;
otherwise the spike that a Relu leaves at zero would decide alone.

All of it is computed from running sums over the bins, so that a candidate costs as much as there are levels, not bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxq.calibration.histogram import Counts, Histogram
from onnxq.calibration.scales import STEPS
from onnxq.errors import UsageError

METHODS = ("max", "entropy", "percentile", "mse")

LEVELS = 128
"""Levels of |x| that the entropy calibrator looks at: 0 to 127."""

CANDIDATES = 1024
"""Thresholds that are tried at most. They are multiples of so many bins, so that two neighbours differ by little."""

_NEARLY = 1e-9
"""Costs that differ by less are equal up to rounding; of equal ones the greatest threshold counts, it clips least."""


@dataclass(frozen=True, slots=True)
class Calibrator:
    """A way to choose the range of a tensor.

    Attributes:
        method: "max" takes the greatest absolute value, "entropy" the threshold whose quantized distribution tells most
            of the true one, "percentile" a quantile of the absolute values, "mse" the threshold of the least squared
            error.
        percentile: For "percentile": how many of the elements other than zero, in percent, aren't clipped.
    """

    method: str = "max"
    percentile: float = 99.99

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(f"calibration method {self.method!r} is unknown, it can be: {', '.join(METHODS)}")
        if not 0 < self.percentile <= 100:
            raise UsageError(f"percentile={self.percentile} is out of range, it can be above 0 and up to 100")

    @property
    def needs_histograms(self) -> bool:
        """Whether the least and the greatest value aren't enough."""
        return self.method != "max"

    def threshold(self, histogram: Histogram) -> float:
        """Where to clip; an edge of the histogram, infinite where nothing is to be clipped."""
        if not self.needs_histograms or not histogram.counts.size:
            return np.inf
        match self.method:
            case "entropy":
                bins = entropy_bins(histogram.counts)
            case "percentile":
                bins = percentile_bins(histogram.counts, self.percentile)
            case _:
                bins = mse_bins(histogram.counts)
        return np.inf if bins >= len(histogram.counts) else bins * histogram.width


def percentile_bins(counts: Counts, percentile: float) -> int:
    """The least number of bins that hold so many percent of the elements.

    Args:
        counts: Elements in each bin, not all zero.
        percentile: Above 0, at most 100.
    """
    running = np.cumsum(counts)
    exact = Fraction(percentile) * int(running[-1]) / 100
    return int(np.searchsorted(running, -(-exact.numerator // exact.denominator))) + 1


def entropy_bins(counts: Counts) -> int:
    """The number of bins at which to clip, by relative entropy (Migacz, "8-bit Inference with TensorRT", GTC 2017).

    One thing is added: a candidate whose squared error is greater than without clipping is none. The divergence looks
    at probabilities alone, so that it gives up rare values however large they are; in networks with few channels of
    great range, as detectors of text have, these carry the result.

    For each candidate of i bins: the reference P is the first i bins, with all that lies beyond added to the last of
    them. The quantized Q puts the first i bins, without what lies beyond, into 128 levels of equal width, and
    spreads each level evenly over those of its bins that aren't empty in P. The candidate with the least KL(P || Q)
    wins.

        KL = sum p/N log((p/N) / (q/M)) = (sum p log p - sum p log q) / N + log(M / N)

    where N counts all elements and M those within i bins. Within a level log q is constant, so both sums come from
    running sums over the bins.

    Args:
        counts: Elements in each bin, not all zero.
    """
    candidates = _candidates(len(counts))
    total = int(counts.sum())
    inside = _running(counts)[candidates].astype(np.float64)
    outside = total - inside
    edges = candidates[:, None] * np.arange(LEVELS + 1) // LEVELS
    level = np.diff(_running(counts)[edges], axis=1).astype(np.float64)
    filled = np.diff(_running(counts > 0)[edges], axis=1)
    last = counts[candidates - 1]
    filled[:, -1] += (last == 0) & (outside > 0)  # P has something there, even if the bin itself is empty
    with np.errstate(divide="ignore", invalid="ignore"):
        log_q = np.log(level / filled)
        reference = level.copy()
        reference[:, -1] += outside
        cross = np.where(reference > 0, reference * log_q, 0).sum(axis=1)  # infinite where Q lacks what P has
        own = _running(_x_log_x(counts))[candidates - 1] + _x_log_x(last + outside)
        divergence = (own - cross) / total + np.log(inside / total)
    divergence[~(inside > 0)] = np.inf
    return _least(candidates, _without_greater_error(counts, candidates, divergence))


def _without_greater_error(
    counts: Counts, candidates: NDArray[np.int64], costs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The costs, infinite for candidates of greater squared error than the last one has, which clips nothing.

    An error takes longer to work out than a divergence, so they are looked at from the least cost on, until no other
    one can be the least: mostly the first few. Whatever costs more is infinite as well.
    """
    limit = _squared_errors(counts, candidates[-1:]) + _NEARLY
    order, found = np.argsort(costs), np.full(len(costs), np.inf)
    start, size = 0, 8
    while start < len(order) and not costs[order[start]] > _up_to_rounding(found.min()):
        some = order[start : start + size]
        errors = _squared_errors(counts, candidates[some])
        found[some] = np.where(errors > limit, np.inf, costs[some])
        start, size = start + size, 2 * size
    return found


def mse_bins(counts: Counts) -> int:
    """The number of bins at which to clip, by the expected squared error of rounding and clipping.

    Args:
        counts: Elements in each bin, not all zero.
    """
    candidates = _candidates(len(counts))
    return _least(candidates, _squared_errors(counts, candidates))


def _squared_errors(counts: Counts, candidates: NDArray[np.int64]) -> NDArray[np.float64]:
    """The squared error of each candidate, as a part of that of rounding everything to zero.

    Each element counts as the middle of its bin. An element x on level k (the multiple k s of the step s) has the error
    (x - k s)^2 = x^2 - 2 k s x + (k s)^2, so that a level needs the sums of 1, x and x^2 over its bins.
    """
    middles = np.arange(len(counts)) + 0.5
    edges = _level_edges(candidates, len(counts))
    number, first, second = (np.diff(_running(counts * middles**power)[edges], axis=1) for power in (0, 1, 2))
    levels = np.arange(STEPS + 1) * (candidates / STEPS)[:, None]
    errors = (second - 2 * levels * first + levels**2 * number).sum(axis=1)
    relative: NDArray[np.float64] = errors / float(counts @ middles**2)
    return relative


def _level_edges(candidates: NDArray[np.int64], bins: int) -> NDArray[np.int64]:
    """Where each level begins, in bins, and where the last one ends; shape [candidates, levels + 1].

    The middle j + 1/2 of a bin is on level k of the step i / 127 if it is at least (k - 1/2) i / 127. The last level
    has all that is clipped too.
    """
    half_steps = (2 * np.arange(1, STEPS + 1) - 1) * candidates[:, None]  # in units of 1 / (2 * 127)
    inner = -((STEPS - half_steps) // (2 * STEPS))
    outer = np.broadcast_to(np.array([0, bins]), (len(candidates), 2))
    edges: NDArray[np.int64] = np.clip(np.concatenate((outer[:, :1], inner, outer[:, 1:]), axis=1), 0, bins)
    return edges


def _candidates(bins: int) -> NDArray[np.int64]:
    """Numbers of bins to clip at, ascending: from as many as there are levels up to all."""
    step = -(-bins // CANDIDATES)
    inner = np.arange(LEVELS, bins, step, dtype=np.int64)
    found: NDArray[np.int64] = np.append(inner, bins)
    return found


def _least(candidates: NDArray[np.int64], costs: NDArray[np.float64]) -> int:
    """The greatest of the candidates with the least cost, up to rounding."""
    return int(candidates[np.flatnonzero(costs <= _up_to_rounding(costs.min()))[-1]])


def _up_to_rounding(least: float) -> float:
    """The greatest cost that counts as equal to the least one."""
    return least + _NEARLY * max(1.0, abs(least))


def _running(values: NDArray[Any]) -> NDArray[Any]:
    """Sums of the first 0, 1, 2, ... values."""
    return np.concatenate(([0], np.cumsum(values)))


def _x_log_x(values: NDArray[Any]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = values * np.log(np.maximum(values, 1))
    return result
