from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

HEAVY = 256
"""What counts as heavy in these tests; the models' weights are, their scales and biases aren't."""


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it, and from then on models of a few kilobytes are large."""

    def lower() -> None:
        monkeypatch.setattr("onnxq.tensor_data.LARGE_MODEL", 1_000)
        monkeypatch.setattr("onnxq.tensor_data.HEAVY_TENSOR", HEAVY)

    return lower


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Saves a model with its weights in another file, of a folder below as a rule."""

    def save_external(model: ModelProto, location: str = "weights/w.bin", name: str = "model.onnx") -> Path:
        file = tmp_path / "models" / name
        (file.parent / location).parent.mkdir(parents=True, exist_ok=True)
        copy = ModelProto()
        copy.CopyFrom(model)
        onnx.save_model(copy, file, save_as_external_data=True, location=location, size_threshold=HEAVY)
        return file

    return save_external
