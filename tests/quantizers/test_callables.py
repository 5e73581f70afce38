"""Python functions as quantizers, here and in another Python."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from onnx import ModelProto

from onnxq.calibration import make_feeds
from onnxq.errors import PeerError, UsageError
from onnxq.quantizers import Settings, resolve
from onnxq.quantizers.peers import PeerQuantizer
from onnxq_builders import build

MODULE = """
    def tag(model, feeds, options):
        total = sum(float(array.sum()) for feed in feeds for array in feed.values())
        model.doc_string = f"{len(feeds)} {total:.4f} {sorted(options)}"
        return model

    class Group:
        @staticmethod
        def declared(model, feeds, options):
            return model

    Group.declared.name, Group.declared.version, Group.declared.policy = "their-tool", "4.5", "onnxruntime"

    def wrong_policy(model, feeds, options):
        return model

    wrong_policy.policy = "elsewhere"

    def nothing(model, feeds, options):
        return None

    def broken(model, feeds, options):
        raise KeyError("node_7")
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_functions.py").write_text(dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_functions", raising=False)


@pytest.fixture
def other_python(tmp_path: Path) -> str:
    """A Python that has the module, as one in another environment would."""
    script = tmp_path / "other-python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture(scope="module")
def model() -> ModelProto:
    return build("residual.identity")


def test_a_function_gets_model_samples_and_options(model: ModelProto) -> None:
    given = ModelProto()
    given.CopyFrom(model)
    result = resolve("python:their_functions:tag").quantize(given, None, {"op_types_to_exclude": ["Add"]})
    (feed,) = make_feeds(model, None, seed=0)
    total = sum(float(array.sum()) for array in feed.values())
    assert result.doc_string == f"1 {total:.4f} ['op_types_to_exclude']"


def test_the_same_in_another_python(model: ModelProto, other_python: str) -> None:
    settings = Settings({"their_functions.tag": other_python})
    quantizer = resolve("python:their_functions:tag", settings)
    assert isinstance(quantizer, PeerQuantizer)
    assert (quantizer.version, quantizer.policy) == ("0", "tensorrt")
    shape = [d.dim_value or 3 for d in model.graph.input[0].type.tensor_type.shape.dim]
    data = {model.graph.input[0].name: np.random.default_rng(1).random(shape, np.float32)}
    here = resolve("python:their_functions:tag").quantize(build("residual.identity"), data, {})
    assert quantizer.quantize(model, data, {}) == here


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_a_function_declares(elsewhere: bool, other_python: str) -> None:
    target = "their_functions:Group.declared"
    settings = Settings({"their_functions.Group.declared": other_python} if elsewhere else {})
    quantizer = resolve(f"python:{target}", settings)
    assert (quantizer.name, quantizer.version, quantizer.policy) == ("their-tool", "4.5", "onnxruntime")
    assert resolve(f"python:{target}@tensorrt", settings).policy == "tensorrt"
    with pytest.raises(UsageError, match='its policy is "elsewhere"'):
        resolve("python:their_functions:wrong_policy", settings)


def test_what_isnt_there_is_said_before_anything_runs(other_python: str) -> None:
    with pytest.raises(UsageError, match=r"asked .* for their_functions:missing, .* AttributeError"):
        resolve("it=python:their_functions:missing", Settings({"it": other_python}))


def test_no_model_returned(model: ModelProto) -> None:
    with pytest.raises(TypeError, match=r"their_functions\.nothing returned a NoneType"):
        resolve("python:their_functions:nothing").quantize(model, None, {})


def test_what_it_raises_here_and_elsewhere(model: ModelProto, other_python: str) -> None:
    with pytest.raises(KeyError, match="node_7"):
        resolve("python:their_functions:broken").quantize(model, None, {})
    quantizer = resolve("it=python:their_functions:broken", Settings({"it": other_python}))
    with pytest.raises(PeerError, match=r"it 0 ended with exit status 1: KeyError: 'node_7'"):
        quantizer.quantize(model, None, {})
