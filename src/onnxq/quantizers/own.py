"""onnxq itself as a quantizer under test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import onnxq
from onnxq.quantizers.quantizer import Policy

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxq.calibration import CalibrationData


class OnnxqQuantizer:
    """onnxq itself."""

    name = "onnxq"

    def __init__(self, policy: Policy = "tensorrt") -> None:
        self.policy: Policy = policy

    @property
    def version(self) -> str:
        """Version of the installed onnxq."""
        return str(onnxq.__version__)

    def quantize(
        self, model: ModelProto, calibration_data: CalibrationData | None, options: Mapping[str, Any]
    ) -> ModelProto:
        """Quantize a model by `onnxq.quantize`; see there for the options and errors."""
        return onnxq.quantize(model, calibration_data=calibration_data, **options).model
