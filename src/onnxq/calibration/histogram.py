"""Histograms of absolute values whose bins lie on a grid of powers of two, so that they merge exactly.

    bin i (from 1) holds the elements with (i-1) w < |x| <= i w, where w = 2**exponent

    0      w      2w     3w     4w             zero is in no bin: every symmetric grid has it, whatever the scale
    +------+------+------+------+
       1      2      3      4                  bins 1 and 2 of width w make up bin 1 of width 2 w,
    +-------------+-------------+              and each power of two within reach is an edge on every finer grid
           1             2

The exponent follows from the greatest value alone. So a histogram depends on the elements that it has seen and on
nothing else: not on their order, nor on how they came in batches and shards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 4096
"""Bins at most; more than half as many lie below the greatest value, unless it is nearly the least number there is."""

CHUNK = 1 << 16
"""Elements that are counted at a time: what is computed on the way stays in the processor's cache."""

_LEAST_EXPONENT = -1022
"""Of a width that is a normal float64, as is its reciprocal."""

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """How many elements other than zero have which absolute value.

    Attributes:
        exponent: The width of a bin is 2**exponent.
        counts: Elements in bins 1, 2, ..., up to that of the greatest; empty if all were zero.
    """

    exponent: int
    counts: Counts

    @property
    def width(self) -> float:
        """Of a bin."""
        return math.ldexp(1.0, self.exponent)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return self.exponent == other.exponent and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]  # counts are an array

    def merged(self, other: Histogram) -> Histogram:
        """The histogram of what both have seen; exactly what one over all of it would be."""
        exponent = max(self.exponent, other.exponent)
        parts = [_widened(part.counts, exponent - part.exponent) for part in (self, other)]
        counts = np.zeros(max(map(len, parts)), np.int64)
        for part in parts:
            counts[: len(part)] += part
        return Histogram(exponent, counts)


def count(values: NDArray[Any], greatest: float) -> Histogram:
    """Make the histogram of an array, a chunk at a time.

    Args:
        values: float32 or float64, of any shape, all finite.
        greatest: The greatest absolute value among them; 0 if there are none.

    Returns:
        Their histogram.
    """
    exponent = grid_exponent(greatest)
    counts = np.zeros(BINS + 1, np.int64)
    if greatest > 0:
        flat = values.reshape(-1)
        for start in range(0, flat.size, CHUNK):
            counts += np.bincount(_bins(flat[start : start + CHUNK], exponent), minlength=BINS + 1)
    used = np.flatnonzero(counts[1:])
    return Histogram(exponent, counts[1 : used[-1] + 2] if used.size else counts[:0])


def grid_exponent(greatest: float) -> int:
    """The least exponent on whose grid `greatest` lies within the bins."""
    if greatest == 0:
        return _LEAST_EXPONENT
    fraction, exponent = math.frexp(greatest)  # 0.5 <= fraction < 1; at 0.5 it is a power of two, itself an edge
    return max(exponent - (fraction == 0.5) - BINS.bit_length() + 1, _LEAST_EXPONENT)


def _bins(values: NDArray[Any], exponent: int) -> NDArray[np.intp]:
    """The bin of each element, 0 for zeros. Multiplying by a power of two rounds nothing, short of underflow."""
    factor = math.ldexp(1.0, -exponent)
    limits = np.finfo(values.dtype)
    if not float(limits.smallest_normal) <= factor <= float(limits.max):
        values = values.astype(np.float64)
    scaled = np.abs(values)
    scaled *= values.dtype.type(factor)
    bins: NDArray[np.intp] = np.ceil(scaled, out=scaled).astype(np.intp)
    if exponent > 0:  # what underflowed belongs into the first bin
        np.maximum(bins, values != 0, out=bins)
    return bins


def _widened(counts: Counts, doublings: int) -> Counts:
    """The counts on a grid that is coarser by some doublings of the width."""
    together = 1 << min(doublings, BINS.bit_length())  # more make no difference: all is in the first bin
    padded = np.pad(counts, (0, -len(counts) % together))
    wide: Counts = padded.reshape(-1, together).sum(axis=1)
    return wide
