"""Weakly typed versions of drawn models: the computation is the same, the metadata isn't."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from onnxq.strategies.labelled import LabelledModel
from onnxq.strategies.weaknesses import WEAKNESSES

MOST = 4
"""Most weaknesses of one model."""


@dataclass(frozen=True, slots=True, eq=False)
class WeakenedModel:
    """A model whose metadata was made worse, with the healthy one.

    Attributes:
        healthy: The model as it was drawn, with the ground truth of its Adds, which holds of the weakened one too.
        model: It computes the same values for all outputs of the healthy one; side branches may have added others.
        weaknesses: What was done to it, out of `WEAKNESSES`.
    """

    healthy: LabelledModel
    model: onnx.ModelProto
    weaknesses: tuple[str, ...]

    def __repr__(self) -> str:
        return f"weaken({self.healthy!r}, {self.weaknesses!r})"


def weaken(healthy: LabelledModel, weaknesses: Sequence[str]) -> WeakenedModel:
    """Make a model's metadata worse.

    Args:
        healthy: Any drawn model; it isn't changed.
        weaknesses: Names out of `WEAKNESSES`; they are applied in the order of that table.

    Returns:
        The weakened model beside the healthy one.
    """
    model = onnx.ModelProto()
    model.CopyFrom(healthy.model)
    chosen = tuple(name for name in WEAKNESSES if name in weaknesses)
    for name in chosen:
        WEAKNESSES[name](model)
    return WeakenedModel(healthy, model, chosen)


def weakened(
    models: st.SearchStrategy[LabelledModel],
    *,
    weaknesses: Sequence[str] = tuple(WEAKNESSES),
    max_weaknesses: int = MOST,
) -> st.SearchStrategy[WeakenedModel]:
    """Models with a drawn set of weaknesses; a failure shrinks to the one that matters.

    Args:
        models: What to weaken: `residual_models()`, `precision_models()`.
        weaknesses: Which are legal, out of `WEAKNESSES`. "topk_above_axis" and "opaque_branch" make models that
            onnxruntime can't load.
        max_weaknesses: Most weaknesses of one model.

    Raises:
        InvalidArgument: A weakness is unknown, or there is none.
    """
    if isinstance(weaknesses, str) or not weaknesses or not set(weaknesses) <= set(WEAKNESSES):
        known = ", ".join(WEAKNESSES)
        raise InvalidArgument(f"weaknesses must be a non-empty sequence out of {known}, not {weaknesses!r}")
    if max_weaknesses < 1:
        raise InvalidArgument(f"max_weaknesses must be at least 1, not {max_weaknesses!r}")
    legal = [name for name in WEAKNESSES if name in weaknesses]
    # Not unique=True: that draws from what is left, so that deleting one element changes the ones behind it.
    names = st.lists(st.sampled_from(legal), min_size=1, max_size=min(max_weaknesses, len(legal)))
    return st.builds(weaken, models, names.map(lambda drawn: list(dict.fromkeys(drawn))))
