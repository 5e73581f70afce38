"""What a transformation of a model gives: the new model, and the way back to the old one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableSequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray
from onnx import ModelProto

from onnxq.protos import M

NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Variant:
    """A changed model, in which the tensors of the original one can still be told.

    Attributes:
        model: The model. It computes for every output of the original what that computes.
        old_names: Tensor with a new name -> its name in the original. What an Identity node yields that was put in
            goes back to the tensor that the node reads. A tensor that isn't listed has kept its name.
        more_feeds: Input that the original doesn't have -> an array for it.
    """

    model: ModelProto
    old_names: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    more_feeds: Mapping[str, NDArray[Any]] = field(default_factory=lambda: NOTHING)

    def feed(self, original: Mapping[str, Any]) -> dict[str, Any]:
        """What the model takes where the original takes the given feed."""
        stored = {tensor.name for tensor in self.model.graph.initializer}
        names = {value.name: self.old_names.get(value.name, value.name) for value in self.model.graph.input}
        wanted = {new: old for new, old in names.items() if new not in stored}
        return {new: original[old] if old in original else self.more_feeds[new] for new, old in wanted.items()}


def copy_model(model: ModelProto) -> ModelProto:
    """A copy that may be changed in place."""
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def replace_all(field: MutableSequence[M], messages: Iterable[M]) -> None:
    """Let a repeated field hold copies of some messages, which may be among those that it holds now."""
    copies = []
    for message in messages:
        copies.append(type(message)())
        copies[-1].CopyFrom(message)
    del field[:]
    field.extend(copies)
