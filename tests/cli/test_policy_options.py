"""`--policy` and `--activation_type`, as people type them."""

import json

import onnx
import pytest
from onnx import numpy_helper

from text_models import text_model


@pytest.fixture
def model() -> str:
    onnx.save(text_model("c = Conv(x, w1, b1) r = Relu(c) d = Conv(r, w2) y = Neg(d)"), "convs.onnx")
    return "convs.onnx"


@pytest.mark.parametrize(
    "spelling", ["--policy onnxruntime --activation_type int8", "--activation-type=int8 --policy=onnxruntime"]
)
def test_quantize(onnxq, model, spelling):
    run = onnxq(f"quantize {model} -o out.onnx {spelling}")
    assert run.status == 0
    quantized = onnx.load("out.onnx")
    types = {n.op_type: set() for n in quantized.graph.node}
    stored = {t.name: numpy_helper.to_array(t) for t in quantized.graph.initializer}
    for node in quantized.graph.node:
        if node.op_type.endswith("Linear"):
            types[node.op_type].add(stored[node.input[2]].dtype.name)
    assert types["QuantizeLinear"] == {"int8"}
    assert types["DequantizeLinear"] == {"int8", "int32"}
    assert onnxq(f"check {model} out.onnx --policy onnxruntime").status == 0


def test_explain(onnxq, model):
    edges = json.loads(onnxq(f"explain {model} --policy onnxruntime --json").out)
    edges = edges if isinstance(edges, list) else edges["edges"]
    assert [(e["node"], e["input"], e["dtype"], e["rule"]) for e in edges if e["quantize"]] == [
        ("c", 0, "uint8", "O1"),
        ("c", 1, "int8", "O1"),
        ("c", 2, "int32", "O2"),
        ("d", 0, "uint8", "O1"),
        ("d", 1, "int8", "O1"),
        ("y", 0, "uint8", "O4"),
    ]


def test_an_add_is_explained_without_trunk_and_skip(onnxq):
    out = onnxq("explain float.onnx --node add --policy onnxruntime").out
    assert "O5" in out
    assert "trunk" not in out


def test_inspect(onnxq, model):
    found = json.loads(onnxq(f"inspect {model} --policy onnxruntime --json").out)
    assert found["planned_scales"] == {
        "activations uint8": 3,
        "weights int8 per channel": 2,
        "biases int32 per channel": 1,
    }
    assert "activations int8" in onnxq(f"inspect {model} --policy onnxruntime --activation_type int8").out


def test_calibrate_and_quantize(onnxq, model):
    assert onnxq(f"calibrate {model} -o ranges.json --policy onnxruntime").status == 0
    assert onnxq(f"quantize {model} -o out.onnx --policy onnxruntime --ranges ranges.json").status == 0
    run = onnxq(f"quantize {model} -o out.onnx --ranges ranges.json --policy tensorrt")
    assert run.status == 0  # of the same tensors fewer are needed


def test_batch_normalization_that_isnt_folded_is_told(onnxq):
    assert (
        "2 BatchNormalization behind convolutions" in onnxq("quantize float.onnx -o out.onnx --policy onnxruntime").err
    )
    assert "BatchNormalization" not in onnxq("quantize float.onnx -o out.onnx").err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--policy tensort",
            "policy='tensort' is unknown, it can be: tensorrt, onnxruntime; near matches: \"tensorrt\"",
        ),
        ("--activation_type uint8", "activation_type='uint8' isn't possible with policy='tensorrt', which takes int8"),
        ("--policy onnxruntime --activation_type int4", "which takes uint8 or int8"),
    ],
)
@pytest.mark.parametrize("command", ["quantize", "explain", "inspect"])
def test_wrong_values(onnxq, model, command, options, message):
    run = onnxq(f"{command} {model} {options}")
    assert run.status == 2
    assert message in run.err
    assert len(run.err.strip().splitlines()) == 1


def test_half_precision_is_refused(onnxq, model):
    run = onnxq(f"quantize -q {model} --policy onnxruntime --high_precision_dtype fp16")
    assert (run.status, run.out) == (2, "")
    assert "use 'fp32', the default of this policy" in run.err
