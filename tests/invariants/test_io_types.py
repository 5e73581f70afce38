"""Whether inputs and outputs may become half precision is for the user to say."""

from __future__ import annotations

import onnxq
from onnxq.invariants import ModelPair
from onnxq.invariants.structure import io_preserved
from onnxq_builders import build


def test_half_precision_inputs_and_outputs_are_right_only_if_asked_for() -> None:
    model = build("residual.identity")
    half = onnxq.quantize(model, high_precision_dtype="fp16", keep_io_types=False).model
    assert io_preserved(ModelPair(model, half, keep_io_types=False)) == []
    found = io_preserved(ModelPair(model, half))
    assert [(v.where, v.expected, v.found) for v in found] == [
        ('input "x"', "float", "float16"),
        ('output "y"', "float", "float16"),
    ]


def test_integers_never_become_half_precision() -> None:
    model = build("weak.topk", k="computed", indices_type=7)
    wrong = onnxq.quantize(model).model
    (indices,) = (value for value in wrong.graph.output if value.name == "indices")
    indices.type.tensor_type.elem_type = 10
    (violation,) = io_preserved(ModelPair(model, wrong, keep_io_types=False))
    assert violation.where == 'output "indices"'
