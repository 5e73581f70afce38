"""INT8 quantization of ONNX models, and the harness that tells whether any quantizer broke something.

Names are loaded on first use, so that `import onnxq` and `pytest --help` stay quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxq.calibrating import calibrate, load_ranges, save_ranges
    from onnxq.calibration import Statistics
    from onnxq.convert import convert_to_f16, convert_to_mixed_precision
    from onnxq.errors import (
        CalibrationError,
        CorpusError,
        InvalidModelError,
        OnnxqError,
        UnsupportedError,
        UsageError,
        VerificationError,
    )
    from onnxq.invariants import Violation, check
    from onnxq.pipeline import QuantizationResult, quantize
    from onnxq.placement import Decision, Edge, Placement, Reason, ResidualAdd, SelectionOptions
    from onnxq.strategies import LabelledModel

_HOME = {
    "CalibrationError": "onnxq.errors",
    "CorpusError": "onnxq.errors",
    "Decision": "onnxq.placement",
    "Edge": "onnxq.placement",
    "InvalidModelError": "onnxq.errors",
    "LabelledModel": "onnxq.strategies",
    "OnnxqError": "onnxq.errors",
    "Placement": "onnxq.placement",
    "QuantizationResult": "onnxq.pipeline",
    "Reason": "onnxq.placement",
    "ResidualAdd": "onnxq.placement",
    "SelectionOptions": "onnxq.placement",
    "UnsupportedError": "onnxq.errors",
    "UsageError": "onnxq.errors",
    "VerificationError": "onnxq.errors",
    "Violation": "onnxq.invariants",
    "calibrate": "onnxq.calibrating",
    "check": "onnxq.invariants",
    "convert_to_f16": "onnxq.convert",
    "convert_to_mixed_precision": "onnxq.convert",
    "load_ranges": "onnxq.calibrating",
    "quantize": "onnxq.pipeline",
    "save_ranges": "onnxq.calibrating",
    "Statistics": "onnxq.calibration",
}

__all__ = [
    "CalibrationError",
    "CorpusError",
    "Decision",
    "Edge",
    "InvalidModelError",
    "LabelledModel",
    "OnnxqError",
    "Placement",
    "QuantizationResult",
    "Reason",
    "ResidualAdd",
    "SelectionOptions",
    "UnsupportedError",
    "UsageError",
    "VerificationError",
    "Violation",
    "calibrate",
    "check",
    "convert_to_f16",
    "convert_to_mixed_precision",
    "load_ranges",
    "quantize",
    "save_ranges",
    "Statistics",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("pytest-onnxq")
        except PackageNotFoundError:
            return "0+unknown"
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
