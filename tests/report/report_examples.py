"""Outcomes to make reports of."""

from __future__ import annotations

import onnx
from onnx import helper

from onnxq.invariants import ModelPair
from onnxq.report import CaseOutcome, CheckOutcome, decisions_of, picture_of


def residual_model(skip: str = "skip", trunk: str = "trunk", node: str = "") -> onnx.ModelProto:
    """x -> Relu -> Conv -> Add(skip) -> y, with any names."""
    weight = helper.make_tensor("weight", onnx.TensorProto.FLOAT, [16, 16, 1, 1], [0.5] * 256)
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 16, 8, 8]) for n in ("x", "y")]
    nodes = [
        helper.make_node("Relu", ["x"], [skip]),
        helper.make_node("Conv", [skip, "weight"], [trunk]),
        helper.make_node("Add", [trunk, skip], ["y"], name=node),
    ]
    graph = helper.make_graph(nodes, "residual", values[:1], values[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def quantize_inputs(model: onnx.ModelProto, node: int, slots: tuple[int, ...]) -> onnx.ModelProto:
    """A copy in which a node reads some of its inputs through a Q/DQ pair of scale 0.1 each."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.graph.initializer.append(helper.make_tensor("s", onnx.TensorProto.FLOAT, [], [0.1]))
    made.graph.initializer.append(helper.make_tensor("z", onnx.TensorProto.INT8, [], [0]))
    pairs = []
    for slot in slots:
        tensor, q, dq = model.graph.node[node].input[slot], f"q{slot}", f"dq{slot}"
        pairs.append(helper.make_node("QuantizeLinear", [tensor, "s", "z"], [q]))
        pairs.append(helper.make_node("DequantizeLinear", [q, "s", "z"], [dq]))
        made.graph.node[node].input[slot] = dq
    nodes = [*list(made.graph.node)[:node], *pairs, *list(made.graph.node)[node:]]
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del made.graph.node[:]
    made.graph.node.extend(copies)
    return made


def example_pair(slots: tuple[int, ...] = (1,), **names: str) -> ModelPair:
    """The residual model, and it with some inputs of its Add quantized: 0 is the trunk, 1 the skip."""
    model = residual_model(**names)
    return ModelPair(model, quantize_inputs(model, 2, slots))


def example_outcome(
    case: str = "residual/example", quantizer: str = "good", *, fails: bool = False, **names: str
) -> CaseOutcome:
    """What a quantizer made of the residual model; one that fails quantizes both inputs of the Add."""
    pair = example_pair((0, 1) if fails else (1,), **names)
    message = 'Add "add"\n    expected: "skip" quantized\n    found:    "trunk" and "skip"'
    check = CheckOutcome("quantized-add-inputs", "failed", message) if fails else CheckOutcome("valid", "passed")
    return CaseOutcome(
        case,
        "One block",
        "made up for the tests",
        ("residual",),
        quantizer,
        "1.0",
        "tensorrt",
        (check,),
        picture_of(pair),
        "add input 1 skip int8\n",
        "add input 0 trunk int8\nadd input 1 skip int8\n" if fails else "add input 1 skip int8\n",
        decisions_of(pair),
        {"y": 18.25 if fails else float("inf")},
    )
