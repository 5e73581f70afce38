"""Quantizers under test: one small interface, and an adapter for each tool that speaks it.

Importing this module loads no quantizer; an adapter does so when it first quantizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

import onnxq
from onnxq.errors import UsageError

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxq.calibration import CalibrationData

Policy = Literal["tensorrt", "onnxruntime"]
"""Whose fusion rules a quantizer places Q/DQ for: "tensorrt" quantizes the skip of a residual Add and never its trunk,
"onnxruntime" quantizes both."""

DEFAULT = "onnxq"
"""The spec that is used where none is given."""


class Quantizer(Protocol):
    """Anything that makes a quantized model of a float one."""

    @property
    def name(self) -> str:
        """Short name; known failures of a case refer to it."""

    @property
    def version(self) -> str:
        """Version of the tool, as PEP 440 writes it."""

    @property
    def policy(self) -> Policy:
        """Whose fusion rules it follows."""

    def quantize(
        self, model: ModelProto, calibration_data: CalibrationData | None, options: Mapping[str, Any]
    ) -> ModelProto:
        """Quantize a model.

        Args:
            model: The float model, complete in memory.
            calibration_data: What `onnxq.quantize` takes; None lets the quantizer make something up.
            options: Further arguments, with the names and meanings that they have in `onnxq.quantize`.

        Returns:
            The quantized model.

        Raises:
            Exception: Whatever the tool raises; the caller counts it as a failure of the tool.
        """


class OnnxqQuantizer:
    """onnxq itself."""

    name = "onnxq"
    policy: Policy = "tensorrt"

    @property
    def version(self) -> str:
        """Version of the installed onnxq."""
        return str(onnxq.__version__)

    def quantize(
        self, model: ModelProto, calibration_data: CalibrationData | None, options: Mapping[str, Any]
    ) -> ModelProto:
        """Quantize a model by `onnxq.quantize`; see there for the options and errors."""
        return onnxq.quantize(model, calibration_data=calibration_data, **options).model


def resolve(spec: str) -> Quantizer:
    """Find the quantizer that a spec names.

    Args:
        spec: As given to `--onnxq-quantizer`: "onnxq".

    Returns:
        Its adapter.

    Raises:
        UsageError: There is no such quantizer; the message lists those that there are.
    """
    if spec == OnnxqQuantizer.name:
        return OnnxqQuantizer()
    raise UsageError(f'quantizer "{spec}": there is none of this name; available: {OnnxqQuantizer.name}')
