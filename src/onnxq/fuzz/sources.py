"""The strategies that a search draws models from, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st

from onnxq.errors import UsageError
from onnxq.strategies import models, precision_models, residual_models, weakened

SOURCES: Mapping[str, Callable[[], st.SearchStrategy[Any]]] = MappingProxyType(
    {
        "residual": residual_models,
        "weakened": lambda: weakened(residual_models()),
        "precision": precision_models,
        "models": lambda: models(dtypes=("float32", "float16", "bfloat16")),
    }
)
"""Name -> strategy: residual networks, the same with wrong or missing metadata, what half precision trips over, and
models of any operators."""


MOST_DRAWN = "residual"
"""The source that is drawn from twice as often: tools differ most in which input of an Add they quantize."""


def models_of(names: Sequence[str] = ()) -> st.SearchStrategy[Any]:
    """What to draw from.

    Args:
        names: Of sources; none for all of them.

    Raises:
        UsageError: There is no such source.
    """
    for name in names:
        if name not in SOURCES:
            near = get_close_matches(name, SOURCES, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise UsageError(f'there are no models called "{name}"{hint} (there are: {", ".join(SOURCES)})')
    return st.one_of([SOURCES[name]() for name in names or (*SOURCES, MOST_DRAWN)])
