"""Ranges that were found earlier, in every form that people have them, for the tensors that are wanted now."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxq.calibration.cache import cache_from_text, cache_to_text
from onnxq.calibration.calibrators import Calibrator
from onnxq.calibration.inputs import near_misses
from onnxq.calibration.ranges import Range, Ranges
from onnxq.calibration.statistics import Statistics
from onnxq.calibration.stored import statistics_from_json, statistics_to_json
from onnxq.errors import CalibrationError, UsageError

GivenRanges = str | os.PathLike[str] | Statistics | Mapping[str, Range]
"""A file written by `onnxq calibrate` or a TensorRT calibration cache, its statistics, or ranges by tensor."""

CACHE_SUFFIX = ".cache"
"""Of a TensorRT calibration cache that is to be written."""


@dataclass(frozen=True)
class Given:
    """Ranges of the tensors that are wanted, or what they can be chosen from.

    Attributes:
        source: Its method `ranges` tells them.
        missing: Tensors that a cache has no scale for.
        warnings: What the user should know.
    """

    source: Statistics | Ranges
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_ranges(path: str | os.PathLike[str]) -> Statistics | Ranges:
    """Read a file of statistics or a TensorRT calibration cache; the content tells which it is.

    Raises:
        CalibrationError: It is missing, or neither.
    """
    file = Path(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise CalibrationError(f"{file}: can't be read: {error.strerror or error}") from None
    if content.lstrip().startswith(b"{"):
        return statistics_from_json(content, file)
    return cache_from_text(content.decode("utf-8", "replace"), file)


def ranges_text(statistics: Statistics, path: str | os.PathLike[str]) -> str:
    """The text of a file of ranges: a TensorRT calibration cache where the name ends in .cache, else JSON."""
    if Path(path).suffix == CACHE_SUFFIX:
        return cache_to_text(statistics.ranges(), statistics.calibrator.method)
    return statistics_to_json(statistics)


def pick_ranges(
    given: GivenRanges, wanted: Sequence[str], known: Collection[str], calibrator: Calibrator | None = None
) -> Given:
    """Pick the ranges of some tensors.

    Args:
        given: The ranges, of these tensors and perhaps of others.
        wanted: Keys of the tensors.
        known: All tensors of the model.
        calibrator: How to choose from statistics; None for the way that they were collected for.

    Returns:
        What is given for them. A tensor that a cache lacks is in `missing`, since TensorRT writes no scale for what it
        leaves float.

    Raises:
        CalibrationError: A tensor is missing in other ranges, or all of them are in a cache.
        UsageError: There is a calibrator, but nothing that it could choose from.
    """
    is_file = isinstance(given, str | os.PathLike)
    source = read_ranges(given) if isinstance(given, str | os.PathLike) else given
    name = f"{os.fspath(given)}" if isinstance(given, str | os.PathLike) else "ranges"
    missing = tuple(tensor for tensor in wanted if tensor not in source)
    is_cache = is_file and isinstance(source, Ranges)
    if missing and (not is_cache or len(missing) == len(wanted)):
        raise CalibrationError(
            f"{name}: no range for {_first(missing)}; {near_misses(missing[0], list(source)[:10])}: "
            "calibrate this model, with the same selection of nodes"
        )
    warnings = [f'{name}: no scale for tensor "{tensor}", so it stays float' for tensor in missing]
    strangers = [tensor for tensor in source if tensor not in known]
    if strangers:
        warnings.append(f"{name}: the model has no {_first(strangers)}")
    here = [tensor for tensor in wanted if tensor in source]
    if isinstance(source, Statistics):
        chosen = Statistics({key: source[key] for key in here}, calibrator or source.calibrator, source.samples)
        return Given(chosen, missing, tuple(warnings))
    if calibrator is not None:
        raise UsageError(f"{name}: these are ranges, not what they were chosen from: leave calibration_method out")
    return Given(Ranges({key: source[key] for key in here}), missing, tuple(warnings))


def _first(tensors: Sequence[str]) -> str:
    others = len(tensors) - 1
    return f'tensor "{tensors[0]}"' + (f", and {others} more" if others else "")
