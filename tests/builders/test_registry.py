"""The registry: names, errors, and what importing the package costs."""

from __future__ import annotations

import inspect
import subprocess
import sys

import onnx
import pytest

import onnxq_builders
from onnxq_builders import BUILDERS, FIXTURE_BUILDERS, build


def test_every_builder_is_a_function_of_the_package_and_a_fixture() -> None:
    assert sorted(FIXTURE_BUILDERS.values()) == sorted(BUILDERS)
    for stem, name in FIXTURE_BUILDERS.items():
        assert getattr(onnxq_builders, stem) is BUILDERS[name]
        assert BUILDERS[name].__name__ == stem
    assert set(onnxq_builders.__all__) == {*FIXTURE_BUILDERS, "BUILDERS", "FIXTURE_BUILDERS", "build"}


@pytest.mark.parametrize("name", BUILDERS)
def test_arguments_are_keywords_with_defaults(name: str) -> None:
    parameters = inspect.signature(BUILDERS[name]).parameters.values()
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in parameters)
    assert {"seed", "opset"} <= {p.name for p in parameters}
    assert inspect.getdoc(BUILDERS[name])


def test_registry_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        BUILDERS["residual.mine"] = onnxq_builders.resnet  # type: ignore[index]


def test_build_passes_arguments_on() -> None:
    model = build("residual.convtranspose_conv", channels=16, batch=1)
    assert isinstance(model, onnx.ModelProto)
    (output,) = model.graph.output
    assert [d.dim_value for d in output.type.tensor_type.shape.dim] == [1, 16, 16, 16]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("residual.convtranspos_conv", "residual.convtranspose_conv"),
        ("convtranspose_conv", "residual.convtranspose_conv"),
        ("resnet", "resnet.basic"),
    ],
)
def test_unknown_builder_names_near_misses_and_all(name: str, near: str) -> None:
    with pytest.raises(ValueError, match=f"unknown builder '{name}'") as caught:
        build(name)
    assert repr(near) in str(caught.value)
    assert all(known in str(caught.value) for known in BUILDERS)


def test_unknown_argument_names_near_misses_and_all() -> None:
    with pytest.raises(ValueError, match=r"'residual\.identity': unknown argument 'chanels'; did you mean 'channels'"):
        build("residual.identity", chanels=16)


def test_unknown_attribute_of_the_package() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = onnxq_builders.nonsense


def test_import_is_light_and_independent() -> None:
    code = """
import sys
import onnxq_builders
print(sorted({"onnx", "numpy"} & set(sys.modules)))
onnxq_builders.build("residual.identity")
print(sorted({"onnxq", "onnxruntime", "hypothesis", "pytest"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]
