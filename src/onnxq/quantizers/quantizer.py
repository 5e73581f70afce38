"""What a quantizer under test is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from onnxq.policies import Policy

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxq.calibration import CalibrationData


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


@dataclass(frozen=True)
class Settings:
    """How quantizers are run, whichever they are.

    Attributes:
        peer_pythons: Name of a quantizer -> the Python interpreter that has it installed, where that isn't this one.
        time_limit: Seconds that one model may take in a process of its own.
    """

    peer_pythons: Mapping[str, str] = field(default_factory=dict)
    time_limit: float = 300.0


DEFAULT_SETTINGS = Settings()
"""Everything in the running environment."""
