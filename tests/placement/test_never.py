"""P6: what is never quantized, checked against the operators of the newest opset."""

from __future__ import annotations

import onnx
import pytest
from onnx.defs import OpSchema

from onnxq.placement.never import NEVER_OP_TYPES
from text_models import quantized_inputs, rules, text_model

NEWEST = {
    s.name: onnx.defs.get_schema(s.name) for s in onnx.defs.get_all_schemas() if s.domain == "" and not s.deprecated
}


def float_positions(schema: OpSchema, parameters: list[OpSchema.FormalParameter]) -> list[int]:
    """Positions that can hold a float32 tensor."""
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    return [n for n, p in enumerate(parameters) if "tensor(float)" in allowed.get(p.type_str, [p.type_str])]


def test_operators_from_floats_to_no_floats_are_all_listed() -> None:
    """They yield ranks, indices, masks, shapes or integers, all by some threshold that rounding moves."""
    unlisted = {
        name
        for name, schema in NEWEST.items()
        if float_positions(schema, schema.inputs)
        and not float_positions(schema, schema.outputs)
        and not any("seq(" in kind or "optional(" in kind for o in schema.outputs for kind in kinds(schema, o))
        and name not in NEVER_OP_TYPES
    }
    assert unlisted == {"OptionalHasElement"}  # which looks at no value


def kinds(schema: OpSchema, parameter: OpSchema.FormalParameter) -> list[str]:
    allowed = {c.type_param_str: list(c.allowed_type_strs) for c in schema.type_constraints}
    return allowed.get(parameter.type_str, [parameter.type_str])


def test_every_listed_operator_exists() -> None:
    assert {s.name for s in onnx.defs.get_all_schemas()} >= NEVER_OP_TYPES


@pytest.mark.parametrize(
    ("body", "inputs", "reads"),
    [
        ('y = Resize<mode = "linear">(x, roi, s)', "float[1,16,8,8] x, float[8] roi, float[4] s", ["x"]),
        ("y = GridSample(x, grid)", "float[1,16,8,8] x, float[1,4,4,2] grid", ["x"]),
        ("y = Pow(x, e)", "float[1,16,8,8] x, float[1] e", ["x"]),
        ("y = Pad(x, pads, v)", "float[1,16,8,8] x, int64[8] pads, float v", ["x"]),
        (
            "y = RoiAlign<output_height = 2, output_width = 2>(x, rois, which)",
            "float[1,16,8,8] x, float[3,4] rois, int64[3] which",
            ["x"],
        ),
        ("y = Where(m, x, z)", "bool[1,16,8,8] m, float[1,16,8,8] x, float[1,16,8,8] z", ["x", "z"]),
        ("y = GatherND(x, i)", "float[1,16,8,8] x, int64[3,1] i", ["x"]),
    ],
    ids=["resize", "grid", "exponent", "pad value", "rois", "mask", "indices"],
)
def test_parameters_of_what_is_asked_for_stay_float(body: str, inputs: str, reads: list[str]) -> None:
    model = text_model(body, inputs, "float y", opset=20)
    options = {"nodes_to_quantize": ["y"]}
    assert quantized_inputs(model, **options) == {"y": reads}
    slots = {(("y", slot)) for slot, name in enumerate(model.graph.node[0].input) if name in reads}
    assert {edge for edge, rule in rules(model, **options).items() if rule == "SELECTED"} == slots


@pytest.mark.parametrize("kind", ["double", "int32", "bfloat16"])
def test_other_types_stay_as_they_are(kind: str) -> None:
    model = text_model("s = Add(x, e) y = Cast<to = 1>(s)", f"{kind}[1,16] x, {kind}[1,16] e", "float y")
    assert quantized_inputs(model, nodes_to_quantize=["s"]) == {}


def test_tensors_without_elements_stay_float() -> None:
    body = """from = Constant<value_ints = [4]>() to = Constant<value_ints = [4]>() axis = Constant<value_ints = [2]>()
        e = Slice(x, from, to, axis) y = Relu(e)"""
    model = text_model(body, outputs="float y")
    assert quantized_inputs(model, nodes_to_quantize=["y"]) == {}
    assert rules(model, nodes_to_quantize=["y"])["y", 0] == "P6"


def test_sizes_of_resize_and_of_topk_stay_as_they_are() -> None:
    body = 'n = Identity(x) r = Resize<mode = "linear">(n, , , sizes) v, i = TopK(r, k) y = Cast<to = 1>(i)'
    model = text_model(body, "float[1,16,8,8] x, int64[4] sizes, int64[1] k", "float y")
    options = {"op_types_to_quantize": ["Resize"], "nodes_to_quantize": ["v", "y"]}
    assert quantized_inputs(model, **options) == {"r": ["n"]}
    assert rules(model, **options)["v", 0] == "P6"


def test_an_output_of_the_graph_stays_float_though_readers_quantize_it() -> None:
    model = text_model("y = Relu(x) z = Conv(y, k1)", outputs="float[1,16,8,8] y, float[1,16,8,8] z")
    assert quantized_inputs(model) == {"z": ["y", "k1"]}
