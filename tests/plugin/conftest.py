from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

# pytester forgets the modules that an inner run imported; compiled ones can't be imported twice, and it takes long.
import hypothesis  # noqa: F401
import pytest

import onnxq.corpus.run  # noqa: F401
import onnxq_builders.registry  # noqa: F401

REFUSAL = """
schema = 1
title = "{title}"
source = "made up"
[model]
file = "model.onnx"
[expect]
raises = "{raises}"
"""

NETWORK = """
schema = 1
title = "{title}"
source = "made up"
tags = {tags}
[model]
builder = "weak.stale_rank0_output"
args = {{ symbolic = true, size = 8 }}
"""

MakeRefusal = Callable[..., Path]
MakeNetwork = Callable[..., Path]

GOLDEN = "expected/placement.txt"

ALL_FLOAT = '[quantize]\nop_types_to_exclude = ["Conv", "Gemm", "MatMul"]\n'
"""What, added to a case of `network`, changes its placement."""


@pytest.fixture(autouse=True)
def outside_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inner runs may write golden files, unless a test says otherwise."""
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture
def network(pytester: pytest.Pytester) -> MakeNetwork:
    """Writes a case with a small network that is quantized in a moment."""

    def make(name: str, *, extra: str = "", title: str = "A small network", tags: tuple[str, ...] = ()) -> Path:
        folder = pytester.path / name
        folder.mkdir(parents=True)
        (folder / "case.toml").write_text(NETWORK.format(title=title, tags=list(tags)) + extra)
        return folder

    return make


@pytest.fixture
def refusal(pytester: pytest.Pytester) -> MakeRefusal:
    """Writes a case of one quick check, `raises`: its model file is no model."""

    def make(name: str, *, raises: str = "InvalidModelError", extra: str = "", title: str = "Not a model") -> Path:
        folder = pytester.path / name
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(b"\xff not a model")
        (folder / "case.toml").write_text(REFUSAL.format(title=title, raises=raises) + extra)
        return folder

    return make
