"""What calibration has seen of the tensors, as values that merge exactly, and the ranges that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from onnxq.calibration.calibrators import Calibrator
from onnxq.calibration.histogram import Histogram
from onnxq.calibration.ranges import Range, Ranges
from onnxq.errors import CalibrationError


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """What was seen of one tensor, over all of its elements.

    Attributes:
        low: The least value.
        high: The greatest value.
        histogram: Of the absolute values; None where only the bounds were looked at.
    """

    low: float
    high: float
    histogram: Histogram | None = None

    def merged(self, other: TensorStatistics) -> TensorStatistics:
        """What both have seen together."""
        both = self.histogram is not None and other.histogram is not None
        histogram = self.histogram.merged(other.histogram) if both else None  # type: ignore[union-attr, arg-type]
        return TensorStatistics(min(self.low, other.low), max(self.high, other.high), histogram)

    def range(self, calibrator: Calibrator) -> Range:
        """The range to quantize: the bounds, each clipped at the calibrator's threshold.

        A bound within the threshold stays, so that what takes ranges with a zero point, like [0, 6], gets them.
        """
        limit = calibrator.threshold(self.histogram) if self.histogram is not None else float("inf")
        return Range(min(max(self.low, -limit), limit), max(min(self.high, limit), -limit))


@dataclass(frozen=True)
class Statistics(Mapping[str, TensorStatistics | None]):
    """What was seen of each tensor, in the order asked for; None of one that was empty in every sample.

    Two of them, from different samples of one data set, merge to exactly what one run over all samples gives.

    Attributes:
        by_tensor: Key of the tensor (in the main graph its name) -> what was seen of it.
        calibrator: How `ranges` chooses.
        samples: How many runs they come from.
    """

    by_tensor: Mapping[str, TensorStatistics | None]
    calibrator: Calibrator = field(default_factory=Calibrator)
    samples: int = 0

    def __getitem__(self, tensor: str) -> TensorStatistics | None:
        return self.by_tensor[tensor]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_tensor)

    def __len__(self) -> int:
        return len(self.by_tensor)

    @property
    def has_histograms(self) -> bool:
        """Whether any calibrator can choose from them; without, only "max" can."""
        return all(seen is None or seen.histogram is not None for seen in self.by_tensor.values())

    def merged(self, other: Statistics) -> Statistics:
        """What both have seen together.

        Raises:
            CalibrationError: They aren't parts of one whole: tensors or calibrators differ.
        """
        for one, two in ((self, other), (other, self)):
            missing = next((name for name in one if name not in two), None)
            if missing is not None:
                raise CalibrationError(
                    f'statistics to merge: only one of them has tensor "{missing}": they come from different models, '
                    "or other nodes were selected"
                )
        if self.calibrator != other.calibrator:
            raise CalibrationError(
                f'statistics to merge: one is of method "{_text(self.calibrator)}", another of '
                f'"{_text(other.calibrator)}": calibrate all parts alike'
            )
        by_tensor = {name: _both(seen, other[name]) for name, seen in self.items()}
        return Statistics(by_tensor, self.calibrator, self.samples + other.samples)

    def ranges(self, calibrator: Calibrator | None = None, *, groups: Iterable[Sequence[str]] = ()) -> Ranges:
        """The range of each tensor.

        Args:
            calibrator: How to choose; by default as the statistics say.
            groups: Tensors that get one range, see `share`.

        Raises:
            CalibrationError: The calibrator needs histograms, and there are none.
        """
        chosen = calibrator or self.calibrator
        if chosen.needs_histograms and not self.has_histograms:
            raise CalibrationError(
                f'the statistics were collected for method "max" and can\'t serve "{chosen.method}": calibrate again'
            )
        own = {name: seen.range(chosen) for name, seen in self.items() if seen is not None}
        return self.using(chosen).share(Ranges(own, tuple(name for name in self if self[name] is None)), groups)

    def share(self, own: Ranges, groups: Iterable[Sequence[str]]) -> Ranges:
        """The same ranges, but one for all tensors of a group.

        They share one scale, so the calibrator looks at the elements of all of them together: what it minimises is then
        the loss over the group. A tensor of few elements doesn't impose its outliers on a great one, as it would if
        each chose a threshold and the greatest counted.

        Args:
            own: The range of each tensor by itself, from `ranges`.
            groups: Tensors that get one range.
        """
        found = dict(own)
        for group in groups:
            members = [seen for name in group if (seen := self.get(name)) is not None]
            if members:
                shared = reduce(TensorStatistics.merged, members).range(self.calibrator)
                found.update((name, shared) for name in group if name in found)
        return Ranges(found, own.never_finite)

    def using(self, calibrator: Calibrator) -> Statistics:
        """The same with another calibrator."""
        return replace(self, calibrator=calibrator)


def merge_statistics(parts: Sequence[Statistics]) -> Statistics:
    """Merge what was seen in the parts of a data set; their order doesn't matter.

    Args:
        parts: One or more.

    Raises:
        CalibrationError: See `Statistics.merged`.
    """
    return reduce(Statistics.merged, parts)


def _both(one: TensorStatistics | None, two: TensorStatistics | None) -> TensorStatistics | None:
    if one is None or two is None:
        return one or two
    return one.merged(two)


def _text(calibrator: Calibrator) -> str:
    return f"percentile {calibrator.percentile}" if calibrator.method == "percentile" else calibrator.method
