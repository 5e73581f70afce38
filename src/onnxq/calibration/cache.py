"""TensorRT's calibration caches: one scale a tensor, as text.

    TRT-8601-EntropyCalibration2
    input: 3c010a14
    conv1_out: 3d1e2f40            name, and the bits of the float32 scale, most significant first

TensorRT names the version and the calibrator in the first line, and refuses to use a cache of another calibrator.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path

from onnxq.calibration.ranges import Range, Ranges
from onnxq.calibration.scales import STEPS, activation_scale
from onnxq.errors import CalibrationError

_VERSION = 8601
"""Of TensorRT, in the first line: the last 8.6, which introduced nothing that a reader could miss here."""


def cache_to_text(ranges: Mapping[str, Range], method: str) -> str:
    """Write ranges as a cache.

    Args:
        ranges: Tensor -> range; of each the scale of symmetric int8 is written, as float32.
        method: How they were found: "max" is TensorRT's MinMaxCalibration, all others pass as EntropyCalibration2.

    Raises:
        CalibrationError: The name of a tensor can't be written in a line.
    """
    kind = "MinMaxCalibration" if method == "max" else "EntropyCalibration2"
    lines = [f"TRT-{_VERSION}-{kind}"]
    for name, found in ranges.items():
        if len(name.splitlines()) != 1 or name != name.strip():
            raise CalibrationError(f"a calibration cache can't hold the name {name!r}: write .json instead")
        lines.append(f"{name}: {struct.pack('>f', float(activation_scale(found))).hex()}")
    return "\n".join(lines) + "\n"


def cache_from_text(text: str, path: Path) -> Ranges:
    """Read a cache.

    Args:
        text: Content of the file.
        path: The file, for messages.

    Returns:
        For each tensor the range from -127 to 127 scales.

    Raises:
        CalibrationError: It is no cache; the message names the line.
    """
    first, *lines = text.splitlines() or [""]
    if not first.startswith("TRT-"):
        raise CalibrationError(
            f"{path}: no file of ranges: neither JSON from `onnxq calibrate`, nor a TensorRT calibration cache, whose "
            f'first line is like "TRT-{_VERSION}-EntropyCalibration2"'
        )
    found: dict[str, Range] = {}
    for number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        name, _, bits = line.rpartition(":")
        scale = _scale(bits.strip())
        if not name or scale is None:
            raise CalibrationError(f'{path}, line {number}: "{line}" is not of the form "tensor: 3c010a14"')
        if not (math.isfinite(scale) and scale >= 0):
            raise CalibrationError(f'{path}, line {number}: the scale of "{name}" is {scale}')
        if name in found:
            raise CalibrationError(f'{path}, line {number}: "{name}" occurs twice')
        found[name] = Range(-scale * STEPS, scale * STEPS)
    return Ranges(found)


def _scale(bits: str) -> float | None:
    try:
        (value,) = struct.unpack(">f", bytes.fromhex(bits))
    except (ValueError, struct.error):
        return None
    return float(value)
