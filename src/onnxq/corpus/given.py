"""What all runs of a case share: its float model and what follows from it, each made once, when it is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

from onnx import ModelProto

from onnxq.calibration import make_feeds
from onnxq.corpus.case import Case
from onnxq.errors import InvalidModelError, OnnxqError
from onnxq.invariants import ModelPair
from onnxq.numerics import Outputs, run_model
from onnxq.pipeline import keeps_io_types
from onnxq.placement import SelectionOptions

_T = TypeVar("_T")


@dataclass(frozen=True)
class Given:
    """The float model of a case, for any number of quantizers. Nobody changes it: a quantizer gets a copy.

    Attributes:
        case: The case.
    """

    case: Case
    _bases: dict[str, ModelPair] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def model(self) -> ModelProto:
        """The model, built or loaded by the first call.

        Raises:
            CorpusError: The case is at fault.
            InvalidModelError: The file is no usable ONNX model.
        """
        return value_of(self._loaded)

    @cached_property
    def feeds(self) -> list[Mapping[str, Any]]:
        """What to run it on: the first sample that quantizers are calibrated with, or would be."""
        shapes = self.case.options.get("calibration_shapes")
        return list(islice(make_feeds(self.model, self.case.calibration_data, shapes=shapes), 1))

    @property
    def outputs(self) -> list[Outputs]:
        """What it computes of the feeds; the first call runs it.

        Raises:
            InvalidModelError: The runtime refuses it.
        """
        return value_of(self._computed)

    @property
    def keeps_io_types(self) -> bool:
        """Whether float32 inputs and outputs have to stay float32."""
        return keeps_io_types(self.case.options.get("keep_io_types"), self._has_direct_io_types)

    @property
    def _has_direct_io_types(self) -> bool:
        return bool(self.case.options.get("direct_io_types", False))

    def pair(self, quantized: ModelProto, policy: str) -> ModelPair:
        """The model beside what a quantizer made of it; pairs of one policy share onnxq's own plan of the model."""
        if policy not in self._bases:
            names, asked = (f.name for f in fields(SelectionOptions)), self.case.options
            selection = SelectionOptions(**{name: asked[name] for name in names if name in asked})
            keeps, direct = self.keeps_io_types, self._has_direct_io_types
            self._bases[policy] = ModelPair(self.model, self.model, policy, selection, keeps, direct)
        base = self._bases[policy]
        try:
            return base.with_quantized(quantized)
        except Exception:  # a check that needs the plan raises it again, and the others can do without
            return replace(base, quantized=quantized)

    @cached_property
    def _loaded(self) -> ModelProto | OnnxqError:
        try:
            return self.case.load_model()
        except OnnxqError as error:
            return error

    @cached_property
    def _computed(self) -> list[Outputs] | InvalidModelError:
        return attempt(self.model, self.feeds)


def attempt(
    model: ModelProto, feeds: list[Mapping[str, Any]], *, optimize: bool = False
) -> list[Outputs] | InvalidModelError:
    """What a model computes, or why it doesn't, as a value: it can be kept either way."""
    try:
        return run_model(model, feeds, optimize=optimize)
    except InvalidModelError as error:
        return error


def value_of(found: _T | OnnxqError) -> _T:
    """What was found; raises the error, if it is one."""
    if isinstance(found, OnnxqError):
        raise found.with_traceback(None)
    return found
