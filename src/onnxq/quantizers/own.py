"""onnxq itself as a quantizer under test."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import onnxq
from onnxq.policies import POLICIES, Policy

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxq.calibration import CalibrationData

DEFAULT = "onnxq"
"""Its spec, and its name, for its default policy."""


class OnnxqQuantizer:
    """onnxq itself.

    Args:
        policy: Whose kernels it quantizes for, unless the options say it.
    """

    def __init__(self, policy: Policy = "tensorrt") -> None:
        self.policy: Policy = policy

    @property
    def name(self) -> str:
        """Its spec: with the policy, if that isn't the default one, since goldens and known failures go by the name."""
        return DEFAULT if self.policy == POLICIES[0] else f"{DEFAULT}:{self.policy}"

    @cached_property
    def version(self) -> str:
        """Version of the installed onnxq."""
        return str(onnxq.__version__)

    def quantize(
        self, model: ModelProto, calibration_data: CalibrationData | None, options: Mapping[str, Any]
    ) -> ModelProto:
        """Quantize a model by `onnxq.quantize`; see there for the options and errors."""
        arguments = {"policy": self.policy, **options}
        return onnxq.quantize(model, calibration_data=calibration_data, **arguments).model
