"""Statistics as a JSON file, so that calibration and quantization can be done apart, and in parts.

    {"format": "onnxq ranges", "version": 1, "method": "entropy", "percentile": 99.99, "samples": 8,
     "tensors": {"conv1_out": {"low": -1.5, "high": 2.25, "histogram": {"exponent": -10, "counts": [12, 7, ...]}},
                 "mask": {"low": 0.0, "high": 1.0},
                 "never_filled": null}}

Numbers are written with as many digits as make them exact, so a file says precisely what was seen.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

from onnxq.calibration.calibrators import Calibrator
from onnxq.calibration.histogram import BINS, Histogram, grid_exponent
from onnxq.calibration.statistics import Statistics, TensorStatistics
from onnxq.errors import CalibrationError, UsageError

VERSION = 1
"""Of the format."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class _Histogram(Struct, frozen=True, forbid_unknown_fields=True):
    exponent: int
    """The width of a bin is 2**exponent."""
    counts: Annotated[list[Count], Meta(max_length=BINS)]
    """Elements with (i-1) width < |x| <= i width, for i = 1, 2, ..."""


class _Tensor(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    low: float
    high: float
    histogram: _Histogram | None = None


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["onnxq ranges"]
    version: int
    method: str
    samples: Count
    tensors: dict[str, _Tensor | None]
    percentile: float = 99.99


class _Head(Struct):
    """What tells whether the rest can be read."""

    format: str = ""
    version: int = 0


def statistics_to_json(statistics: Statistics) -> str:
    """Write statistics as text; `statistics_from_json` gives them back exactly."""
    calibrator = statistics.calibrator
    tensors = {name: None if seen is None else _tensor(seen) for name, seen in statistics.items()}
    file = _File("onnxq ranges", VERSION, calibrator.method, statistics.samples, tensors, calibrator.percentile)
    return msgspec.json.encode(file).decode() + "\n"


def statistics_from_json(text: str | bytes, path: Path) -> Statistics:
    """Read statistics.

    Args:
        text: Content of the file.
        path: The file, for messages.

    Raises:
        CalibrationError: It is no such file, of another version, or contradicts itself; the message names the place.
    """
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.format != "onnxq ranges":
            raise CalibrationError(f'{path}: no file of ranges, as `onnxq calibrate` writes them: no "format" says so')
        if head.version != VERSION:
            raise CalibrationError(f"{path}: version {head.version} of the format, this onnxq reads {VERSION}")
        file = msgspec.json.decode(text, type=_File)
        calibrator = Calibrator(file.method, file.percentile)
    except (msgspec.DecodeError, UnicodeDecodeError, UsageError) as error:
        raise CalibrationError(f"{path}: {error}") from None
    tensors = {name: None if seen is None else _seen(seen, f'{path}: "{name}"') for name, seen in file.tensors.items()}
    return Statistics(tensors, calibrator, file.samples)


def _tensor(seen: TensorStatistics) -> _Tensor:
    histogram = seen.histogram
    return _Tensor(
        seen.low, seen.high, None if histogram is None else _Histogram(histogram.exponent, histogram.counts.tolist())
    )


def _seen(tensor: _Tensor, where: str) -> TensorStatistics:
    if not (math.isfinite(tensor.low) and math.isfinite(tensor.high) and tensor.low <= tensor.high):
        raise CalibrationError(f"{where}: low {tensor.low!r} and high {tensor.high!r} are no range")
    if tensor.histogram is None:
        return TensorStatistics(tensor.low, tensor.high)
    found = Histogram(tensor.histogram.exponent, np.array(tensor.histogram.counts, np.int64))
    greatest = max(-tensor.low, tensor.high)
    fits = found.exponent == grid_exponent(greatest)
    if not fits or len(found.counts) != math.ceil(greatest / found.width) or (greatest and not found.counts[-1]):
        raise CalibrationError(
            f"{where}: the histogram isn't that of values from {tensor.low!r} to {tensor.high!r}: to set bounds by "
            'hand, leave out all histograms and say "method": "max"'
        )
    return TensorStatistics(tensor.low, tensor.high, found)
