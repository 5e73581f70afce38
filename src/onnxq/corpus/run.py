"""One quantizer's run of one case: the models, or the error, and what the checks share."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from onnxq.corpus.case import Case
from onnxq.corpus.format import Expect
from onnxq.corpus.given import Given, attempt, value_of
from onnxq.corpus.limits import bounded_memory
from onnxq.errors import CorpusError, InvalidModelError, OnnxqError, UnsupportedError
from onnxq.invariants import ModelPair
from onnxq.numerics import Outputs, direct_feeds, output_sqnr, real_outputs
from onnxq.quantizers import DEFAULT, OnnxqQuantizer, Quantizer
from onnxq.quantizers.exchange import DATA_OPTIONS, peer_feeds

if TYPE_CHECKING:
    from onnxq.relations import Trial


@dataclass(frozen=True)
class CaseRun:
    """What came out when a quantizer was given the model of a case.

    Attributes:
        given: The float side, which runs by several quantizers share.
        expect: What must hold under the policy.
        policy: By which the result is judged.
        quantized: The result; None if there is an error.
        error: What loading or quantizing raised.
        quantizer: Name of the quantizer.
        tool: The quantizer itself, for checks that need it once more.
    """

    given: Given
    expect: Expect
    policy: str
    quantized: ModelProto | None = None
    error: Exception | None = None
    quantizer: str = DEFAULT
    tool: Quantizer | None = None

    @property
    def case(self) -> Case:
        """The case."""
        return self.given.case

    @property
    def float_model(self) -> ModelProto | None:
        """The model that was given; None if the case's file can't be loaded."""
        try:
            return self.given.model
        except OnnxqError:
            return None

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
        if self.quantized is None:
            raise ValueError("a run that failed has no pair of models")
        return self.given.pair(self.quantized, self.policy)

    @cached_property
    def trial(self) -> Trial:
        """What relations look at: the quantizer with this model, these options and samples."""
        from onnxq.relations import Trial

        if self.tool is None:
            raise ValueError("a run without a quantizer has no trial")
        options = {name: value for name, value in self.case.options.items() if name not in DATA_OPTIONS}
        samples = peer_feeds(self.given.model, self.case.calibration_data, self.case.options)
        return Trial(self.tool, self.given.model, options=options, samples=samples)

    @property
    def feeds(self) -> list[Mapping[str, Any]]:
        """What to run the float model on."""
        return self.given.feeds

    @cached_property
    def quantized_feeds(self) -> list[Mapping[str, Any]]:
        """The same for the quantized model, whose inputs have other types where the case asks for it."""
        return self.feeds if self.given.keeps_io_types else direct_feeds(self.pair.quantized, self.feeds)

    @cached_property
    def noise(self) -> dict[str, float]:
        """Float output -> its signal to quantization noise ratio in dB.

        Raises:
            InvalidModelError: The runtime refuses one of the models.
        """
        results = real_outputs(self.pair.quantized, value_of(self._computed))
        return output_sqnr(self.given.outputs, results)

    @cached_property
    def running_problems(self) -> list[str]:
        """Why onnxruntime doesn't load or run the quantized model, with its optimizations off and on."""
        optimized = attempt(self.pair.quantized, self.quantized_feeds, optimize=True)
        return [str(found) for found in (self._computed, optimized) if isinstance(found, InvalidModelError)]

    @cached_property
    def _computed(self) -> list[Outputs] | InvalidModelError:
        """What the quantized model computes as its operators are defined, with the runtime's optimizations off."""
        return attempt(self.pair.quantized, self.quantized_feeds)


def run_case(case: Case, quantizer: Quantizer, given: Given | None = None) -> CaseRun:
    """Give the model of a case to a quantizer.

    Args:
        case: The case.
        quantizer: Any quantizer. What it raises is kept, whatever it is; its input is a copy, so that it can't change
            what its result is compared with.
        given: The float side of the case, from an earlier run of it; None for a new one.

    Returns:
        The run.

    Raises:
        CorpusError: The case itself is at fault.
    """
    given, name = given or Given(case), quantizer.name
    expect, policy = case.expect_of(quantizer.policy), case.judged_by(quantizer.policy)
    try:
        model = ModelProto()
        model.CopyFrom(given.model)
    except CorpusError:
        raise
    except OnnxqError as error:
        return CaseRun(given, expect, policy, error=error, quantizer=name)
    try:
        # A bound on memory would pass on to the processes that other quantizers start, and those need more.
        with bounded_memory() if isinstance(quantizer, OnnxqQuantizer) else nullcontext():
            quantized = quantizer.quantize(model, case.calibration_data, case.options)
    except Exception as error:  # a peer may raise anything, and that is a failed case, not a failed run
        return CaseRun(given, expect, policy, error=error, quantizer=name)
    return CaseRun(given, expect, policy, quantized, quantizer=name, tool=quantizer)
