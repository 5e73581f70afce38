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

MakeRefusal = Callable[..., Path]


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
