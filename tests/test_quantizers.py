from __future__ import annotations

import pytest

import onnxq
from onnxq.errors import UsageError
from onnxq.quantizers import Quantizer, resolve
from onnxq_builders import build


def test_onnxq() -> None:
    quantizer: Quantizer = resolve("onnxq")
    assert (quantizer.name, quantizer.version, quantizer.policy) == ("onnxq", onnxq.__version__, "tensorrt")
    model = build("residual.identity")
    options = {"op_types_to_quantize": ["Conv"]}
    assert quantizer.quantize(model, None, options) == onnxq.quantize(model, **options).model
    assert model == build("residual.identity")


@pytest.mark.parametrize("spec", ["", "onnx", "modelopt", "python:os:system"])
def test_unknown(spec: str) -> None:
    with pytest.raises(UsageError, match=f'quantizer "{spec}": .*available: onnxq'):
        resolve(spec)
