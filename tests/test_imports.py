"""`import onnxq` is quick, and gives every public name on first use."""

import importlib
import subprocess
import sys

import pytest

import onnxq

HEAVY = ("onnx", "onnxruntime", "numpy", "hypothesis", "msgspec", "rich", "onnx_graphsurgeon")


@pytest.mark.parametrize("package", ["onnxq", "onnxq_builders"])
def test_importing_the_package_imports_nothing_heavy(package):
    code = f"import sys, {package}; dir({package}); print(*[m for m in {HEAVY!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


@pytest.mark.parametrize("name", [*onnxq.__all__, "__version__"])
def test_every_public_name_resolves(name):
    assert getattr(onnxq, name) is not None


def test_dir_lists_the_public_names():
    assert set(onnxq.__all__) <= set(dir(onnxq))


def test_public_names_are_those_of_their_home():
    for name in onnxq.__all__:
        home = importlib.import_module(getattr(onnxq, name).__module__)
        assert getattr(home, name) is getattr(onnxq, name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="quantise"):
        onnxq.quantise  # noqa: B018
