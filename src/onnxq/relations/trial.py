"""One quantizer and one model: what relations look at, worked out once for all of them."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from onnx import ModelProto

from onnxq.calibration import make_feeds
from onnxq.errors import InvalidModelError, OnnxqError, PeerError, UnsupportedError
from onnxq.invariants import ModelPair
from onnxq.model_io import why_invalid
from onnxq.numerics import Outputs, run_model
from onnxq.pipeline import find_quantization, keeps_io_types
from onnxq.placement import SelectionOptions
from onnxq.quantizers import DEFAULT_SETTINGS, Quantizer, Settings
from onnxq.relations.variant import NOTHING, Variant, copy_model
from onnxq.relations.wires import Decided, Wire, decided
from onnxq.strategies import LabelledAdd, LabelledModel, WeakenedModel

Feed = Mapping[str, Any]


class NotApplicableError(Exception):
    """A relation says nothing about a trial; the message says why."""


@dataclass(frozen=True)
class Outcome:
    """What came out when a quantizer was given a model.

    Attributes:
        given: The model that it got, as it was afterwards.
        feeds: The calibration samples, as they were afterwards.
        model: The result; None if there is an error.
        error: What it raised.
    """

    given: ModelProto
    feeds: Sequence[Feed]
    model: ModelProto | None = None
    error: Exception | None = None

    @property
    def failure(self) -> str:
        """The error in one line."""
        return f"{type(self.error).__name__}: {' '.join(str(self.error).split())}"

    @property
    def cause(self) -> str:
        """What kind of error it is, and where it was raised, without names out of the model."""
        if self.error is None:
            return ""
        frames = traceback.extract_tb(self.error.__traceback__)
        place = f" in {Path(frames[-1].filename).name}, {frames[-1].name}" if frames else ""
        if isinstance(self.error, PeerError):
            place = f": {self.error.output.rpartition(chr(10))[2].partition(':')[0]}"
        return f"{type(self.error).__name__}{place}"


@dataclass(frozen=True)
class Trial:
    """What a relation is checked on.

    Attributes:
        quantizer: The quantizer under test.
        model: A float model. Isn't changed.
        adds: The ground truth of its residual Adds, if that is known.
        seed: Of the calibration samples, and of what relations draw.
        options: For the quantizer, as `onnxq.quantize` names them.
        spec: What `onnxq.quantizers.resolve` makes the quantizer of; "" if it isn't known. Needed to run it in another
            process.
        settings: For `resolve`.
        companion: A model to put beside it; None for a small residual network.
        samples: The calibration samples; none to make one up.
    """

    quantizer: Quantizer
    model: ModelProto
    adds: tuple[LabelledAdd, ...] = ()
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    spec: str = ""
    settings: Settings = DEFAULT_SETTINGS
    companion: ModelProto | None = None
    samples: Sequence[Feed] = ()

    @property
    def policy(self) -> str:
        """Whose fusion rules the result is judged by."""
        return str(self.options.get("policy", self.quantizer.policy))

    def rng(self, purpose: str) -> Random:
        """A source of randomness that is the same for one seed and purpose."""
        return Random(f"{self.seed} {purpose}")

    @cached_property
    def feeds(self) -> list[Feed]:
        """The calibration samples, which the models are run on as well."""
        if self.samples:
            return list(self.samples)
        try:
            return list(make_feeds(self.model, None, seed=self.seed))
        except OnnxqError as error:
            raise NotApplicableError(f"no samples can be made up for the model: {error}") from None

    @cached_property
    def outcome(self) -> Outcome:
        """What the quantizer makes of the model."""
        return self.quantize(self.model, self.feeds)

    @property
    def quantized(self) -> ModelProto:
        """The quantized model.

        Raises:
            NotApplicableError: There is none. "no-crash" judges that.
        """
        return result_of(self.outcome)

    @cached_property
    def pair(self) -> ModelPair:
        """The model and the quantized one."""
        return self.pair_of(self.model, self.quantized)

    @cached_property
    def decided(self) -> Mapping[Wire, Decided]:
        """What was decided of each float edge."""
        return self.decided_of(self.pair)

    @cached_property
    def reference(self) -> list[Outputs]:
        """What the float model computes.

        Raises:
            NotApplicableError: onnxruntime doesn't run it.
        """
        try:
            return run_model(self.model, self.feeds)
        except InvalidModelError as error:
            raise NotApplicableError(f"the float model doesn't run: {error}") from None

    @cached_property
    def is_sound(self) -> bool:
        """Whether nobody may refuse the model: valid, without Q/DQ, and it runs and yields finite floats."""
        if why_invalid(self.model) or find_quantization(self.model) is not None:
            return False
        try:
            arrays = [value for outputs in self.reference for value in outputs.values() if _is_float(value)]
        except NotApplicableError:
            return False
        return bool(arrays) and all(np.isfinite(value.astype(np.float64)).all() for value in arrays)

    def quantize(self, model: ModelProto, feeds: Sequence[Feed], **options: Any) -> Outcome:
        """Give a copy of a model to the quantizer.

        Args:
            model: Any model.
            feeds: Calibration samples for it.
            **options: Beside those of the trial.

        Returns:
            What came out, whatever that is.
        """
        given = copy_model(model)
        samples = [{name: np.array(value) for name, value in feed.items()} for feed in feeds]
        try:
            result = self.quantizer.quantize(given, samples, {**self.options, **options})
        except Exception as error:  # a quantizer may raise anything
            return Outcome(given, samples, error=error)
        return Outcome(given, samples, result)

    def quantize_variant(self, variant: Variant) -> Outcome:
        """Give a variant of the model to the quantizer, with the same calibration samples."""
        return self.quantize(variant.model, [variant.feed(feed) for feed in self.feeds])

    def pair_of(self, model: ModelProto, quantized: ModelProto) -> ModelPair:
        """Two models beside each other, judged by the policy and the options of the trial."""
        names = [f.name for f in fields(SelectionOptions)]
        direct = bool(self.options.get("direct_io_types", False))
        return ModelPair(
            model,
            quantized,
            self.policy,
            SelectionOptions(**{name: self.options[name] for name in names if name in self.options}),
            keeps_io_types(self.options.get("keep_io_types"), direct),
            direct,
            self.options.get("activation_type"),
        )

    def decided_of(self, pair: ModelPair, old_names: Mapping[str, str] = NOTHING) -> dict[Wire, Decided]:
        """What was decided of each float edge of a pair, in the old names.

        Raises:
            NotApplicableError: onnxq can't read the float model.
        """
        try:
            return decided(pair, old_names)
        except OnnxqError as error:
            raise NotApplicableError(f"onnxq can't read the float model: {error}") from None


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and (value.dtype.kind == "f" or value.dtype.name == "bfloat16")


def trial_of(quantizer: Quantizer, drawn: LabelledModel | WeakenedModel, **arguments: Any) -> Trial:
    """A trial of what a strategy drew, with its ground truth.

    Args:
        quantizer: The quantizer under test.
        drawn: What was drawn.
        **arguments: Other fields of `Trial`.
    """
    labelled = drawn.healthy if isinstance(drawn, WeakenedModel) else drawn
    return Trial(quantizer, drawn.model, labelled.adds, **arguments)


def result_of(outcome: Outcome) -> ModelProto:
    """The quantized model.

    Raises:
        NotApplicableError: There is none.
    """
    if outcome.model is None:
        offered = "" if isinstance(outcome.error, UnsupportedError) else "it failed: "
        raise NotApplicableError(f"{offered}{outcome.failure}")
    return outcome.model
