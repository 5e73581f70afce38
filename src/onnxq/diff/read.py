"""From two files, each a model or a stored placement, to the two sides of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx

from onnxq.diff.stored import parse_explanation, parse_golden
from onnxq.diff.view import PlacementView, view_of_pair
from onnxq.errors import InvalidModelError, UsageError
from onnxq.invariants import ModelPair
from onnxq.model_io import PathLike, load_model
from onnxq.pipeline import find_quantization
from onnxq.rewrite import strip_pairs


def read_views(a: PathLike, b: PathLike, *, float_model: PathLike | None = None) -> tuple[PlacementView, PlacementView]:
    """Read two models or placements as they can be compared.

    Args:
        a: An ONNX model, float or quantized by any tool; a placement.txt of a corpus; or the output of
            `onnxq explain --json`.
        b: Another one.
        float_model: The float model whose tensors both speak of. Without it, it is the one of `a` and `b` that holds no
            Q/DQ, else `a` with its Q/DQ taken out.

    Returns:
        The two sides, keyed by the same float model.

    Raises:
        UsageError: A stored placement can't be read, or the float model is none.
        InvalidModelError: A model can't be read.
    """
    one, two = _read(Path(a)), _read(Path(b))
    if isinstance(one, PlacementView) and isinstance(two, PlacementView):
        if float_model is not None:
            raise UsageError(f"{float_model}: a float model is of use only where {a} or {b} is a model")
        return one, two
    pair = _float_pair([side for side in (one, two) if isinstance(side, _Model)], float_model)
    return _view(one, pair), _view(two, pair)


@dataclass(frozen=True)
class _Model:
    """A model and where it is from."""

    path: Path
    model: onnx.ModelProto
    is_float: bool


def _load(path: Path) -> _Model:
    model = load_model(path)
    return _Model(path, model, find_quantization(model) is None)


def _read(path: Path) -> PlacementView | _Model:
    text = _stored_text(path)
    if text is None:
        return _load(path)
    return parse_explanation(text, str(path)) if text.lstrip().startswith("{") else parse_golden(text, str(path))


def _stored_text(path: Path) -> str | None:
    """The content of a stored placement; None for what is to be read as a model."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
            if not head.lstrip().startswith((b"{", b"# onnxq ")):
                return None
            return (head + file.read()).decode("utf-8")
    except OSError:
        return None  # loading it as a model says what is wrong
    except UnicodeDecodeError:
        return None


def _float_pair(models: list[_Model], given: PathLike | None) -> ModelPair:
    """The float model that both sides are keyed by, planned, beside itself."""
    base = _load(Path(given)) if given is not None else next((m for m in models if m.is_float), models[0])
    if given is not None and not base.is_float:
        raise UsageError(f"{given}: holds Q/DQ, so it isn't the float model")
    float_model = base.model if base.is_float else strip_pairs(base.model)
    pair = ModelPair(float_model, float_model)
    try:
        pair.plan  # noqa: B018 (it is made once, for both sides)
    except InvalidModelError as error:
        raise InvalidModelError(f"{base.path}: {error}") from None
    return pair


def _view(side: PlacementView | _Model, pair: ModelPair) -> PlacementView:
    if isinstance(side, PlacementView):
        return side
    what = "float model" if side.is_float else "quantized model"
    return view_of_pair(str(side.path), pair.with_quantized(side.model), what=what)
