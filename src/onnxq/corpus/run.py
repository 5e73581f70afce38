"""One quantizer's run of one case: the models, or the error, and what the checks share."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import islice
from typing import Any

from onnx import ModelProto

from onnxq.calibration import make_feeds
from onnxq.corpus.case import Case
from onnxq.corpus.format import Expect
from onnxq.corpus.limits import bounded_memory
from onnxq.errors import CorpusError, OnnxqError, UnsupportedError
from onnxq.invariants import ModelPair
from onnxq.numerics import direct_feeds, output_sqnr, real_outputs, run_model
from onnxq.pipeline import keeps_io_types
from onnxq.placement import SelectionOptions
from onnxq.quantizers import DEFAULT, OnnxqQuantizer, Quantizer


@dataclass(frozen=True)
class CaseRun:
    """What came out when a quantizer was given the model of a case.

    Attributes:
        case: The case.
        expect: What must hold under the policy.
        policy: By which the result is judged.
        float_model: The model that was given; None if the case's file can't be loaded.
        quantized: The result; None if there is an error.
        error: What loading or quantizing raised.
        quantizer: Name of the quantizer.
    """

    case: Case
    expect: Expect
    policy: str
    float_model: ModelProto | None = None
    quantized: ModelProto | None = None
    error: Exception | None = None
    quantizer: str = DEFAULT

    @property
    def failure(self) -> str:
        """The error in one line."""
        return f"{type(self.error).__name__}: {' '.join(str(self.error).split())}"

    @property
    def not_offered(self) -> str:
        """What the case asks for that the quantizer doesn't do, in its words; "" if that isn't why it failed.

        Says nothing of the default quantizer, which offers all that a case can ask for.
        """
        return str(self.error) if isinstance(self.error, UnsupportedError) and self.quantizer != DEFAULT else ""

    @cached_property
    def pair(self) -> ModelPair:
        """Both models; only for a run without error."""
        if self.float_model is None or self.quantized is None:
            raise ValueError("a run that failed has no pair of models")
        names = (f.name for f in fields(SelectionOptions))
        selection = SelectionOptions(**{name: self.case.options[name] for name in names if name in self.case.options})
        keeps, direct = self._keeps_io_types, self._has_direct_io_types
        return ModelPair(self.float_model, self.quantized, self.policy, selection, keeps, direct)

    @cached_property
    def feeds(self) -> list[Mapping[str, Any]]:
        """What to run the float model on: the first sample that the quantizer was, or would be, calibrated with."""
        shapes = self.case.options.get("calibration_shapes")
        feeds = make_feeds(self.pair.float_model, self.case.calibration_data, shapes=shapes)
        return list(islice(feeds, 1))

    @cached_property
    def quantized_feeds(self) -> list[Mapping[str, Any]]:
        """The same for the quantized model, whose inputs have other types where the case asks for it."""
        return self.feeds if self._keeps_io_types else direct_feeds(self.pair.quantized, self.feeds)

    @property
    def _keeps_io_types(self) -> bool:
        return keeps_io_types(self.case.options.get("keep_io_types"), self._has_direct_io_types)

    @property
    def _has_direct_io_types(self) -> bool:
        return bool(self.case.options.get("direct_io_types", False))

    @cached_property
    def noise(self) -> dict[str, float]:
        """Float output -> its signal to quantization noise ratio in dB.

        Raises:
            InvalidModelError: The runtime refuses one of the models.
        """
        reference = run_model(self.pair.float_model, self.feeds)
        results = run_model(self.pair.quantized, self.quantized_feeds)
        return output_sqnr(reference, real_outputs(self.pair.quantized, results))


def run_case(case: Case, quantizer: Quantizer) -> CaseRun:
    """Give the model of a case to a quantizer.

    Args:
        case: The case.
        quantizer: Any quantizer. What it raises is kept, whatever it is; its input is a copy, so that it can't change
            what its result is compared with.

    Returns:
        The run.

    Raises:
        CorpusError: The case itself is at fault.
    """
    expect, policy = case.expect_of(quantizer.policy), case.judged_by(quantizer.policy)
    try:
        float_model = case.load_model()
    except CorpusError:
        raise
    except OnnxqError as error:
        return CaseRun(case, expect, policy, error=error, quantizer=quantizer.name)
    given = ModelProto()
    given.CopyFrom(float_model)
    try:
        # A bound on memory would pass on to the processes that other quantizers start, and those need more.
        with bounded_memory() if isinstance(quantizer, OnnxqQuantizer) else nullcontext():
            quantized = quantizer.quantize(given, case.calibration_data, case.options)
    except Exception as error:  # a peer may raise anything, and that is a failed case, not a failed run
        return CaseRun(case, expect, policy, float_model, error=error, quantizer=quantizer.name)
    return CaseRun(case, expect, policy, float_model, quantized, quantizer=quantizer.name)
