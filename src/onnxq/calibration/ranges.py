"""Calibrated ranges, as values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """Least and greatest value that a tensor had; both finite, and both were seen.

    Attributes:
        low: The least value.
        high: The greatest value, at least `low`.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(f"no range: [{self.low}, {self.high}]")


@dataclass(frozen=True)
class Ranges(Mapping[str, Range]):
    """Ranges by tensor name.

    Attributes:
        by_tensor: Tensor name -> range.
        never_finite: Tensors that the calibration saw no element of, because they were empty in every sample, in the
            order asked for. They have no range and can't be quantized.
    """

    by_tensor: Mapping[str, Range]
    never_finite: tuple[str, ...] = ()

    def __getitem__(self, tensor: str) -> Range:
        return self.by_tensor[tensor]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_tensor)

    def __len__(self) -> int:
        return len(self.by_tensor)

    def ranges(self) -> Ranges:
        """These themselves, as of statistics those that follow from them."""
        return self

    def share(self, own: Ranges, groups: Iterable[Sequence[str]]) -> Ranges:
        """The same ranges, but for all tensors of a group the union of theirs."""
        shared = dict(own)
        for group in groups:
            members = [own[name] for name in group if name in own]
            if members:
                union = Range(min(r.low for r in members), max(r.high for r in members))
                shared.update((name, union) for name in group if name in own)
        return Ranges(shared, own.never_finite)
