"""The rules one by one: what becomes half precision, what stays float32, and what is said about it."""

from __future__ import annotations

import numpy as np
import onnx
import precision_checks as checks
import pytest
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.parser import parse_model
from precision_models import MODELS, H, head

from onnxq.convert import Lowered, convert, convert_to_f16, convert_to_mixed_precision
from onnxq.errors import UsageError
from onnxq.precision import Kept
from onnxq.protos import opset_version, walk_graphs


def lowered(name: str, **options: object) -> Lowered:
    return convert(parse_model(MODELS[name]), **options)


def converted(name: str, **options: object) -> ModelProto:
    return lowered(name, **options).model


def reasons(result: Lowered) -> dict[str, Kept]:
    """Operator of each node that stays float32 -> why."""
    return {kept.node.partition(" ")[0]: kept.why for kept in result.kept}


def operators(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def stored(model: ModelProto) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for graph in walk_graphs(model.graph) for t in graph.initializer}


# F1: the interface


def test_casts_stand_at_the_boundary() -> None:
    assert operators(converted("conv_relu")) == ["Cast", "Conv", "Relu", "Cast"]


def test_without_keeping_the_interface_no_cast_is_needed() -> None:
    model = converted("conv_relu", keep_io_types=False)
    assert operators(model) == ["Conv", "Relu"]
    assert set(checks.element_types(model).values()) == {TensorProto.FLOAT16}
    assert model.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "n"


def test_an_output_that_is_read_on_is_cast_once_and_read_in_half() -> None:
    model = converted("output_read_on")
    assert operators(model) == ["Cast", "Relu", "Cast", "Neg", "Cast"]
    assert checks.computing_type(model, "Neg") == ["float16"]


@pytest.mark.parametrize("keep", [True, False])
def test_an_output_that_is_an_input_keeps_one_maker(keep: bool) -> None:
    model = converted("output_is_input", keep_io_types=keep)
    assert "u" not in {name for node in model.graph.node for name in node.output}


def test_of_an_initializer_that_is_an_output_a_copy_is_read() -> None:
    values = stored(converted("output_is_initializer"))
    assert {name: v.dtype.name for name, v in values.items()} == {"w": "float32", "w_float16": "float16"}
    values = stored(converted("output_is_initializer", keep_io_types=False))
    assert {name: v.dtype.name for name, v in values.items()} == {"w": "float16"}


def test_a_public_initializer_beyond_the_range_stays_float32() -> None:
    model = parse_model(H + "g (float[2] x) => (float[2] y, float w) <float w = {70000}> { y = Add(x, w) }")
    model = convert_to_f16(model, keep_io_types=False)
    assert stored(model)["w"] == np.float32(70000)
    assert [v.type.tensor_type.elem_type for v in model.graph.output] == [TensorProto.FLOAT16, TensorProto.FLOAT]


def test_an_unused_initializer_of_float32_may_stay() -> None:
    assert stored(converted("initializer_unused"))["w"].dtype == np.float32


# F2: what must stay float32


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("resize")])
@pytest.mark.parametrize("half", ["fp16", "bf16"])
def test_resize_keeps_what_steers_it(name: str, half: str) -> None:
    model = converted(name, low_precision_type=half)
    types = checks.element_types(model)
    resizes = [node for graph in walk_graphs(model.graph) for node in graph.node if node.op_type == "Resize"]
    assert resizes
    for node in resizes:
        assert types[node.input[0]] == {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}[half]
        assert all(types[i] in (TensorProto.FLOAT, TensorProto.INT64) for i in node.input[1:] if i)


def test_left_out_inputs_stay_left_out() -> None:
    (node,) = (n for n in converted("resize_constant").graph.node if n.op_type == "Resize")
    assert list(node.input)[1:] == ["", "s"]


def test_scales_that_a_mul_shares_are_stored_twice() -> None:
    values = stored(converted("resize_shared_scales"))
    assert {name: v.dtype.name for name, v in values.items()} == {"s": "float32", "s_float16": "float16"}


def test_arithmetic_with_shapes_stays_exact() -> None:
    result = lowered("resize_computed")
    assert reasons(result)["Div"] == Kept.SHAPE
    assert checks.computing_type(result.model, "Div") == ["float"]
    result = lowered("resize_sizes_by_float")
    assert reasons(result) == {"Mul": Kept.SHAPE, "Floor": Kept.SHAPE}


@pytest.mark.parametrize(("name", "kind"), [("isinf_13", "float"), ("isinf_20", "float16")])
def test_isinf_follows_its_schema(name: str, kind: str) -> None:
    assert checks.computing_type(converted(name), "IsInf")[-1] == kind


@pytest.mark.parametrize("name", ["celu", "nms", "function", "contrib", "lstm"])
def test_operators_without_a_half_form(name: str) -> None:
    result = lowered(name)
    kept = {"celu": "Celu", "nms": "NonMaxSuppression", "function": "Twice", "contrib": "Gelu"}
    if name == "lstm":
        assert reasons(result) == {}
    else:
        assert reasons(result)[kept[name]] == Kept.OPERATOR
        assert checks.computing_type(result.model, kept[name]) == ["float"]


def test_what_the_user_excludes() -> None:
    result = lowered("matmul_gemm", op_types_to_exclude=["Gemm"])
    assert reasons(result) == {"Gemm": Kept.EXCLUDED}
    assert checks.computing_type(result.model, "Gemm") == ["float"]
    assert checks.computing_type(result.model, "MatMul") == ["float16"]
    result = lowered("matmul_gemm", nodes_to_exclude=["MatMul_.*", "Soft.*"])
    assert reasons(result) == {"MatMul": Kept.EXCLUDED, "Softmax": Kept.EXCLUDED}


def test_what_the_user_excludes_must_be_there() -> None:
    with pytest.raises(UsageError, match=r"nodes_to_exclude_fp16.*nothing_like_it"):
        lowered("conv_relu", nodes_to_exclude=["nothing_like_it"])
    with pytest.raises(UsageError, match=r"Conf.*Conv"):
        lowered("conv_relu", op_types_to_exclude=["Conf"])
    with pytest.raises(UsageError, match=r"'fp8'.*'fp16', 'bf16'"):
        lowered("conv_relu", low_precision_type="fp8")


def test_an_excluded_cast_of_integers_yields_float32() -> None:
    model = converted("cast_integers_low", op_types_to_exclude=["Cast"])
    assert checks.node_making(model, "f").attribute[0].i == TensorProto.FLOAT


# F3: constants


def test_an_initializer_of_one_precision_is_converted_in_place() -> None:
    model = converted("conv_relu")
    assert {name: v.dtype.name for name, v in stored(model).items()} == {"w": "float16", "b": "float16"}


@pytest.mark.parametrize("name", ["shared_initializer", "shared_by_three", "if_mixed_readers"])
def test_a_shared_initializer_is_stored_once_for_each_precision(name: str) -> None:
    values = stored(converted(name))
    assert {n: v.dtype.name for n, v in values.items()} == {"w": "float32", "w_float16": "float16"}
    np.testing.assert_array_equal(values["w_float16"], values["w"].astype(np.float16))


def test_an_outer_initializer_is_converted_once_for_all_branches() -> None:
    assert {n: v.dtype.name for n, v in stored(converted("if_weight_in_two_branches")).items()} == {"w": "float16"}


def test_values_beyond_the_range_keep_what_they_reach_in_float32() -> None:
    result = lowered("beyond_range")
    assert reasons(result) == {"Mul": Kept.RANGE, "Sigmoid": Kept.RANGE}
    np.testing.assert_array_equal(stored(result.model)["w"], np.float32([70000, -70000, 1]))


def test_values_up_to_the_greatest_do_not() -> None:
    assert reasons(lowered("greatest_value")) == {}
    assert reasons(lowered("within_range")) == {}


@pytest.mark.parametrize(("value", "stays"), [(65504, False), (65519, False), (65520, True), (-65520, True)])
def test_where_the_range_ends(value: float, stays: bool) -> None:
    model = parse_model(H + f"g (float[2] x) => (float[2] y) <float t = {{{value}}}> {{ y = Add(x, t) }}")
    assert reasons(convert(model)) == ({"Add": Kept.RANGE} if stays else {})
    assert reasons(convert(model, low_precision_type="bf16")) == {}


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("mask") and name != "mask_infinite"])
def test_masks_are_float32_up_to_the_softmax(name: str) -> None:
    result = lowered(name)
    assert reasons(result)["Softmax"] == Kept.RANGE
    assert checks.computing_type(result.model, "Softmax") == ["float"]


def test_an_excluded_node_hands_on_what_is_beyond_the_range() -> None:
    result = lowered("mask_where", op_types_to_exclude=["Where"])
    assert reasons(result) == {"Where": Kept.EXCLUDED, "Softmax": Kept.RANGE}


def test_a_mask_that_a_branch_yields_is_float32_up_to_the_softmax() -> None:
    assert reasons(lowered("if_yields_mask"))["Softmax"] == Kept.RANGE


def test_after_the_softmax_comes_half_precision() -> None:
    assert checks.computing_type(converted("mask_reshaped"), "Neg") == ["float16", "float16"]


def test_infinite_constants_stay_infinite() -> None:
    result = lowered("mask_infinite")
    assert reasons(result) == {}
    assert stored(result.model)["big"] == -np.inf


def test_tiny_values_keep_their_sign() -> None:
    values = stored(converted("tiny_values"))["w"]
    assert values.dtype == np.float16
    assert list(np.signbit(values)) == [True, False, False, True]
    assert values[0] == 0


def test_subnormal_values_round_to_their_nearest() -> None:
    model = parse_model(H + "g (float[3] x) => (float[3] y) <float[3] w = {-1e-7, 5e-8, 1}> { y = Mul(x, w) }")
    np.testing.assert_array_equal(stored(convert_to_f16(model))["w"], np.float16([-1.2e-7, 6e-8, 1]))


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith(("eps", "denominators", "tiny_only"))])
def test_epsilons_stay_float32(name: str) -> None:
    result = lowered(name)
    assert Kept.EPSILON in reasons(result).values()
    values = stored(result.model)
    assert all(v.dtype == np.float32 or v.all() for name, v in values.items() if name.startswith("e"))


def test_an_epsilon_costs_only_what_leads_to_the_division() -> None:
    model = parse_model(
        H
        + """g (float[2,4] x) => (float[2,4] y) <float e = {1e-12}> { n = Neg(x) v = Mul(n, n) a = Add(v, e) s = Sqrt(a)
        d = Div(n, s) y = Tanh(d) }"""
    )
    assert {k.node for k in convert(model).kept} == {'Add "Add_0"', 'Sqrt "Sqrt_0"', 'Div "Div_0"'}


def test_a_tiny_element_of_a_weight_or_bias_costs_nothing() -> None:
    model = parse_model(
        H
        + """g (float[2,3] x) => (float[2,2] y) <float[3,2] w = {1e-9, 1, 2, 3, 4, 5}, float[2] b = {1e-9, 1}> {
        m = MatMul(x, w) y = Add(m, b) }"""
    )
    assert convert(model).kept == ()


def test_computed_constants_are_judged_by_their_values() -> None:
    text = """g (float[2] x) => (float[2] y) <float a = {{300}}, float b = {{{0}}}> {{ c = Mul(a, b) y = Add(x, c) }}"""
    assert reasons(convert(parse_model(H + text.format(2)))) == {"Mul": Kept.CONSTANT}
    assert reasons(convert(parse_model(H + text.format(300)))) == {"Mul": Kept.CONSTANT, "Add": Kept.RANGE}


@pytest.mark.parametrize("name", ["empty_initializer", "empty_constant", "empty_input"])
def test_empty_tensors_take_the_type_of_the_others(name: str) -> None:
    model = converted(name)
    (concat,) = (node for node in model.graph.node if node.op_type == "Concat")
    types = checks.element_types(model)
    assert {types[name] for name in concat.input} == {TensorProto.FLOAT16}
    assert len([n for n in model.graph.node if n.op_type == "Cast"]) == (3 if name == "empty_input" else 2)


def test_constant_nodes_of_every_attribute_become_half() -> None:
    model = converted("constants")
    kinds = {n.output[0]: n.attribute[0].name for n in model.graph.node if n.op_type == "Constant"}
    assert kinds["c"] == "value_int"
    assert kinds["d"] == "value_ints"
    assert kinds["z"] == "value_strings"
    assert {checks.element_types(model)[name] for name in ("a", "b", "h")} == {TensorProto.FLOAT16}
    assert {checks.element_types(model)[name] for name in ("f", "f_float16")} == {
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
    }


def test_a_fill_value_is_made_in_the_precision_of_its_readers() -> None:
    model = converted("constant_of_shape")
    types = checks.element_types(model)
    assert (types["a"], types["b"]) == (TensorProto.FLOAT16, TensorProto.FLOAT)
    assert checks.node_making(model, "b_float16").op_type == "Cast"  # `b` is read in both


# F4: quantization


def test_scales_become_half_precision() -> None:
    model = converted("qdq_weight")
    assert {stored(model)[name].dtype.name for name in ("s", "ws")} == {"float16"}
    assert operators(model) == [
        "Cast",
        "QuantizeLinear",
        "DequantizeLinear",
        "DequantizeLinear",
        "MatMul",
        "Relu",
        "Cast",
    ]
    assert opset_version(model) == 19


def test_an_old_opset_is_raised_for_half_scales() -> None:
    model = converted("qdq_old_opset")
    assert opset_version(model) == 19
    assert stored(model)["s"].dtype == np.float16


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("qdq_scale_underflows", Kept.SCALE),
        ("qdq_scale_loses", Kept.SCALE),
        ("qdq_scale_overflows", Kept.WIDE),
    ],
)
def test_scales_that_half_precision_spoils_keep_their_pair(name: str, why: Kept) -> None:
    result = lowered(name)
    assert reasons(result)["DequantizeLinear"] == why
    float_values = stored(parse_model(MODELS[name]))
    for tensor, values in stored(result.model).items():
        if tensor in ("s", "ws"):
            np.testing.assert_array_equal(values, float_values[tensor])


@pytest.mark.parametrize(("scale", "why"), [(515, None), (516, Kept.WIDE)])
def test_a_scale_whose_steps_reach_beyond_the_range_keeps_its_readers(scale: float, why: Kept | None) -> None:
    model = parse_model(
        head(19)
        + f"""g (float[2,3] x) => (float[2,3] y) <float s = {{{scale}}}, int8 z = {{0}}> {{
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) t = Tanh(d) y = Neg(t) }}"""
    )
    expected = {} if why is None else dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "Tanh"), why)
    assert reasons(convert(model)) == expected


# F5: Casts


def test_chains_collapse_but_the_first_narrowing_stays() -> None:
    assert operators(converted("cast_chain")) == ["Cast", "Relu", "Cast"]
    assert operators(converted("cast_through")) == ["Cast", "Cast"]
    assert operators(converted("cast_same_type_inside")) == ["Cast", "Relu", "Neg", "Cast"]


def test_narrowings_stay() -> None:
    assert operators(converted("cast_narrowing_pair")) == ["Celu", "Cast", "Cast", "Celu"]
    model = converted("cast_bfloat16_pair")
    assert [n.attribute[0].i for n in model.graph.node if n.op_type == "Cast"][1] == TensorProto.BFLOAT16
    model = converted("cast_integer_pair")
    assert [n.attribute[0].i for n in model.graph.node if n.op_type == "Cast"][1] == TensorProto.INT32


def test_several_readers_share_what_a_cast_read() -> None:
    model = converted("cast_several_readers")
    assert operators(model) == ["Cast", "Relu", "Add", "Mul", "Cast", "Neg", "Cast", "Celu"]


def test_public_casts_stay() -> None:
    assert checks.node_making(converted("cast_input_to_output"), "y").op_type == "Cast"
    model = converted("cast_twice")
    assert [checks.node_making(model, name).op_type for name in ("y", "z")] == ["Cast", "Cast"]


def test_integers_are_cast_to_what_their_readers_want() -> None:
    model = converted("cast_integers_low")
    assert checks.node_making(model, "f").attribute[0].i == TensorProto.FLOAT16
    model = converted("cast_integers_mixed")
    assert checks.node_making(model, "f").attribute[0].i == TensorProto.FLOAT
    assert checks.node_making(model, "f_float16").input[0] == "i"


def test_large_integers_are_judged_by_their_values() -> None:
    assert reasons(lowered("cast_large_integers")) == {"Mul": Kept.CONSTANT}
    text = "g (float[3] x) => (float[3] y) <int64[3] p = {1, 2049, 100000}> { f = Cast<to = 1>(p) y = Mul(f, x) }"
    assert reasons(convert(parse_model(H + text))) == {"Mul": Kept.RANGE}


def test_a_float_input_that_is_cast_to_integers_is_read_in_float32() -> None:
    assert checks.node_making(converted("cast_to_integers"), "i").input[0] == "x"


def test_half_constants_are_read_as_they_are() -> None:
    model = converted("half_initializer")
    assert operators(model) == ["Cast", "Mul", "Cast"]
    model = converted("half_io")
    assert operators(model) == ["Mul", "Cast"]  # the Cast makes a graph output


def test_half_constants_are_no_bits_of_bfloat16() -> None:
    model = converted("half_initializer", low_precision_type="bf16")
    assert stored(model)["w"].dtype == np.float16  # it is cast
    assert checks.computing_type(model, "Mul") == ["bfloat16"]


# F6: bodies and containers


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith(("if_", "loop", "scan"))])
def test_boundaries_of_bodies_are_float32(name: str) -> None:
    model = converted(name)
    types = checks.element_types(model)
    for graph in list(walk_graphs(model.graph))[1:]:
        assert {types[v.name] for v in (*graph.input, *graph.output)}.isdisjoint({TensorProto.FLOAT16})
    nodes = [n for graph in list(walk_graphs(model.graph))[1:] for n in graph.node]
    assert any(TensorProto.FLOAT16 in (types[i] for i in n.input if i) for n in nodes), "nothing became half inside"


def test_bodies_share_the_casts_of_what_they_capture() -> None:
    branches = list(walk_graphs(converted("if_gemm").graph))[1:]
    assert [branch.node[0].input[0] for branch in branches] == ["x_float16", "x_float16"]


@pytest.mark.parametrize("name", ["sequence", "sequence_concat", "sequence_split", "optional"])
def test_containers_hold_float32(name: str) -> None:
    model = converted(name)
    held = [
        v.type.sequence_type.elem_type.tensor_type.elem_type or v.type.optional_type.elem_type.tensor_type.elem_type
        for v in onnx.shape_inference.infer_shapes(model).graph.value_info
        if not v.type.HasField("tensor_type")
    ]
    assert held
    assert set(held) == {TensorProto.FLOAT}
    assert checks.computing_type(model, "Relu") == ["float16"]


# F9: opset


def test_the_opset_is_raised_only_where_half_precision_needs_it() -> None:
    assert opset_version(converted("conv_relu")) == 17
    assert opset_version(converted("isinf_13")) == 13
    assert opset_version(converted("conv_relu", low_precision_type="bf16")) == 22


# Mixed precision


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, set()),
        ({"data_max": 50.0}, {"Softmax", "Gemm"}),
        ({"init_max": 8.0}, {"MatMul"}),
        ({"max_depth_of_reduction": 3}, {"MatMul"}),
        ({"max_depth_of_reduction": 4}, set()),
    ],
)
def test_mixed_precision_keeps_what_exceeds_a_bound(options: dict[str, object], kept: set[str]) -> None:
    data = [{"x": np.ones((2, 4), np.float32)}]
    model = convert_to_mixed_precision(parse_model(MODELS["matmul_gemm"]), calibration_data=data, **options)
    checks.check_valid(model)
    wide = {n.op_type for n in model.graph.node if checks.computing_type(model, n.op_type) == ["float"]} - {"Cast"}
    assert wide == kept
