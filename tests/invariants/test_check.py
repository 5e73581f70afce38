"""Every invariant finds the fault that it is for, and nothing in a correct result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnxq.errors import InvalidModelError, UsageError
from onnxq.invariants import INVARIANTS, ModelPair, check, quantized_inputs
from onnxq_builders.registry import BUILDERS, build
from text_models import quantize_int8, text_model


def float_model() -> ModelProto:
    """A residual block, a Resize, a TopK and a Transpose that copies a quantized tensor."""
    return text_model(
        """[relu] s = Relu(x) [conv1] a = Conv(s, w1) [add] t = Add(a, s)
        [transpose] p = Transpose<perm = [0,1,3,2]>(t) [conv2] b = Conv(t, w2) [conv3] d = Conv(p, w3)
        sc = Constant<value_floats = [1.0,1.0,1.0,1.0]>() [resize] r = Resize<mode = "linear">(b, , sc)
        [sub] y = Sub(r, d) [topk] v, i = TopK(y, one)""",
        "float[batch,16,8,8] x, int64[1] one",
        "float[batch,16,8,8] y, float[batch,16,8,?] v",
    )


def quantized(model: ModelProto) -> ModelProto:
    return quantize_int8(model, calibration_data=[{"x": sample(), "one": np.array([1])}]).model


def sample() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((1, 16, 8, 8), np.float32)


def node(model: ModelProto, name: str) -> NodeProto:
    return next(n for n in model.graph.node if n.name == name)


def pair_nodes(model: ModelProto, tensor: str) -> tuple[NodeProto, NodeProto]:
    """Q and DQ of a tensor."""
    q = next(n for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == tensor)
    dq = next(n for n in model.graph.node if n.op_type == "DequantizeLinear" and n.input[0] == q.output[0])
    return q, dq


def initializer(model: ModelProto, name: str) -> TensorProto:
    return next(t for t in model.graph.initializer if t.name == name)


def set_values(model: ModelProto, name: str, values: np.ndarray) -> None:
    initializer(model, name).CopyFrom(numpy_helper.from_array(values, name))


def insert_pair(model: ModelProto, reader: NodeProto, slot: int, scale: float = 0.1) -> None:
    """A pair of its own on one input of a node."""
    position = list(model.graph.node).index(reader)
    model.graph.initializer.append(numpy_helper.from_array(np.float32(scale), "new_scale"))
    model.graph.initializer.append(numpy_helper.from_array(np.int8(0), "new_zero"))
    q = helper.make_node("QuantizeLinear", [reader.input[slot], "new_scale", "new_zero"], ["new_q"], name="new_q_node")
    dq = helper.make_node("DequantizeLinear", ["new_q", "new_scale", "new_zero"], ["new_dq"], name="new_dq_node")
    reader.input[slot] = "new_dq"
    model.graph.node.insert(position, dq)
    model.graph.node.insert(position, q)


def wrong_axis(model: ModelProto) -> None:
    for n in pair_nodes(model, "w1"):
        n.attribute[0].i = 1


def axis_out_of_range(model: ModelProto) -> None:
    for n in pair_nodes(model, "w1"):
        n.attribute[0].i = 7


def too_few_scales(model: ModelProto) -> None:
    q, _ = pair_nodes(model, "w1")
    scale, zero = (numpy_helper.to_array(initializer(model, name)) for name in q.input[1:])
    set_values(model, q.input[1], scale[:5])
    set_values(model, q.input[2], zero[:5])


def zero_scale(model: ModelProto) -> None:
    set_values(model, pair_nodes(model, "s")[0].input[1], np.float32(0))


def nan_scale(model: ModelProto) -> None:
    set_values(model, pair_nodes(model, "s")[0].input[1], np.float32("nan"))


def negative_scale(model: ModelProto) -> None:
    q, _ = pair_nodes(model, "w1")
    scale = numpy_helper.to_array(initializer(model, q.input[1])).copy()
    scale[3] *= -1
    set_values(model, q.input[1], scale)


def zero_point_of_other_shape(model: ModelProto) -> None:
    set_values(model, pair_nodes(model, "w1")[0].input[2], np.zeros(3, np.int8))


def doubled_pair(model: ModelProto) -> None:
    insert_pair(model, node(model, "conv1"), 0)


def dangling_pair(model: ModelProto) -> None:
    reader = node(model, "conv2")
    reader.input[0] = "t"


def pair_on_both_inputs(model: ModelProto) -> None:
    insert_pair(model, node(model, "add"), 0)


def pair_on_neither_input(model: ModelProto) -> None:
    node(model, "add").input[1] = "s"


def pair_on_the_trunk(model: ModelProto) -> None:
    node(model, "add").input[1] = "s"
    insert_pair(model, node(model, "add"), 0)


def lost_shape_field(model: ModelProto) -> None:
    model.graph.output[0].type.tensor_type.ClearField("shape")


def other_rank(model: ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 1


def other_size(model: ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 17


def renamed_symbol(model: ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "unk__0"


def fixed_symbol(model: ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1


def renamed_output(model: ModelProto) -> None:
    model.graph.output[0].name = "y_DequantizeLinear_Output"
    model.graph.node.append(helper.make_node("Identity", ["y"], ["y_DequantizeLinear_Output"]))


def reordered_outputs(model: ModelProto) -> None:
    outputs = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in reversed(model.graph.output)]
    del model.graph.output[:]
    model.graph.output.extend(outputs)


def dropped_output(model: ModelProto) -> None:
    del model.graph.output[1]


def other_output_type(model: ModelProto) -> None:
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16


def missing_op(model: ModelProto) -> None:
    relu = node(model, "relu")
    relu.op_type = "Identity"


def added_op(model: ModelProto) -> None:
    model.graph.node.append(helper.make_node("Relu", ["y"], ["more"], name="more"))


def pair_on_resize_scales(model: ModelProto) -> None:
    insert_pair(model, node(model, "resize"), 2)


def pair_on_topk(model: ModelProto) -> None:
    insert_pair(model, node(model, "topk"), 0)


def pair_behind_the_output(model: ModelProto) -> None:
    sub = node(model, "sub")
    sub.output[0] = "y_raw"
    node(model, "topk").input[0] = "y_raw"
    q, _ = pair_nodes(model, "s")
    model.graph.node.append(helper.make_node("QuantizeLinear", ["y_raw", *q.input[1:]], ["y_q"], name="yq"))
    model.graph.node.append(helper.make_node("DequantizeLinear", ["y_q", *q.input[1:]], ["y"], name="ydq"))


def weight_off(model: ModelProto) -> None:
    weight = numpy_helper.to_array(initializer(model, "w1")).copy()
    weight[0, 0, 0, 0] += 1.0
    set_values(model, "w1", weight)


def weight_scale_off(model: ModelProto) -> None:
    q, _ = pair_nodes(model, "w1")
    scale = numpy_helper.to_array(initializer(model, q.input[1])).copy()
    scale[2] /= 2
    set_values(model, q.input[1], scale)


def store_integers(model: ModelProto, offset: int = 0) -> None:
    """The weight of conv1 as int8 behind a lone DequantizeLinear, some steps off."""
    q, dq = pair_nodes(model, "w1")
    weight, scale = (numpy_helper.to_array(initializer(model, name)) for name in q.input[:2])
    steps = np.clip(np.rint(weight / scale.reshape(-1, 1, 1, 1)) + offset, -127, 127).astype(np.int8)
    model.graph.node.remove(q)
    model.graph.initializer.append(numpy_helper.from_array(steps, "w1_int8"))
    dq.input[0] = "w1_int8"


def stored_integers_off(model: ModelProto) -> None:
    store_integers(model, offset=1)


def scales_apart(model: ModelProto) -> None:
    set_values(model, pair_nodes(model, "p")[0].input[1], np.float32(0.5))


def doubled_name(model: ModelProto) -> None:
    node(model, "conv1").name = "conv2"


def doubled_tensor(model: ModelProto) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.float32(1), "w1"))


def fine_channel_off(model: ModelProto) -> None:
    """Off by many steps of its own channel, and by little in those of the coarsest one."""
    weight = numpy_helper.to_array(initializer(model, "w2")).copy()
    weight[0] *= 0.5
    set_values(model, "w2", weight)


def reads_what_is_not_there(model: ModelProto) -> None:
    node(model, "conv1").input[0] = "nowhere"


FAULTS: list[tuple[str, Callable[[ModelProto], None]]] = [
    ("valid", reads_what_is_not_there),
    ("unique-names", doubled_name),
    ("unique-names", doubled_tensor),
    ("io-preserved", renamed_output),
    ("io-preserved", reordered_outputs),
    ("io-preserved", dropped_output),
    ("io-preserved", other_output_type),
    ("shapes-preserved", lost_shape_field),
    ("shapes-preserved", other_rank),
    ("shapes-preserved", other_size),
    ("symbolic-dims-preserved", renamed_symbol),
    ("symbolic-dims-preserved", fixed_symbol),
    ("operators-preserved", missing_op),
    ("operators-preserved", added_op),
    ("outputs-float", pair_behind_the_output),
    ("residual-skip-only", pair_on_both_inputs),
    ("residual-skip-only", pair_on_neither_input),
    ("residual-skip-only", pair_on_the_trunk),
    ("never-rounded", pair_on_resize_scales),
    ("never-rounded", pair_on_topk),
    ("scales-positive", zero_scale),
    ("scales-positive", nan_scale),
    ("scales-positive", negative_scale),
    ("scales-positive", zero_point_of_other_shape),
    ("weight-axes", wrong_axis),
    ("weight-axes", axis_out_of_range),
    ("weight-axes", too_few_scales),
    ("weights-reconstructed", weight_off),
    ("weights-reconstructed", weight_scale_off),
    ("weights-reconstructed", fine_channel_off),
    ("weights-reconstructed", stored_integers_off),
    ("no-repeated-pairs", doubled_pair),
    ("no-dangling-pairs", dangling_pair),
    ("copies-share-scale", scales_apart),
]


def test_every_invariant_has_a_fault() -> None:
    assert {name for name, _ in FAULTS} == set(INVARIANTS)


@pytest.mark.parametrize(("invariant", "spoil"), FAULTS, ids=[f"{name}-{f.__name__}" for name, f in FAULTS])
def test_the_fault_is_found(invariant: str, spoil: Callable[[ModelProto], None]) -> None:
    before = float_model()
    after = quantized(before)
    assert not check(before, after)
    spoil(after)
    (first, *_) = check(before, after, only=[invariant])
    assert first.invariant == invariant
    assert first.expected != first.found
    assert invariant in {v.invariant for v in check(before, after)}
    assert all(text in str(first) for text in (first.where, first.expected, first.found, first.invariant))


def test_faults_of_the_interface_are_found_by_few_invariants() -> None:
    """One fault shouldn't be told five times."""
    for invariant, spoil in FAULTS:
        if invariant in ("io-preserved", "shapes-preserved", "symbolic-dims-preserved"):
            before = float_model()
            after = quantized(before)
            spoil(after)
            found = {v.invariant for v in check(before, after)} - {"valid"}
            assert len(found) <= 2, (spoil.__name__, found)


@pytest.mark.parametrize("name", [n for n in BUILDERS if n.startswith(("residual.", "weak."))])
def test_own_results_keep_every_invariant(name: str) -> None:
    model = build(name)
    assert not check(model, quantize_int8(model).model)


def test_half_precision_results_keep_every_invariant() -> None:
    model = text_model(
        "s = Relu(x) a = Conv(s, w1) y = Add(a, s)", "float16[1,16,8,8] x", "float16[1,16,8,8] y", dtype=np.float16
    )
    assert not check(model, quantize_int8(model).model)


def test_a_float_model_against_itself_lacks_only_the_skips() -> None:
    """Neither input of the Add is quantized, and nor is the convolution, so nothing is wrong."""
    model = float_model()
    assert not check(model, model)


def test_a_quantized_model_against_itself_breaks_nothing() -> None:
    model = quantized(float_model())
    pair_behind_the_output(model)
    assert not check(model, model)


def test_renamed_nodes_are_matched_by_what_they_yield() -> None:
    before = float_model()
    after = quantized(before)
    for number, n in enumerate(after.graph.node):
        n.name = f"node_{number}"
    assert not check(before, after)
    node(after, next(n.name for n in after.graph.node if n.op_type == "Add")).input[1] = "s"
    assert [v.invariant for v in check(before, after)] == ["residual-skip-only"]


def test_weights_that_are_stored_as_integers_are_fine() -> None:
    before = float_model()
    after = quantized(before)
    store_integers(after)
    assert not check(before, after)


def test_under_the_other_policy_both_inputs_may_be_quantized() -> None:
    before = float_model()
    after = quantized(before)
    pair_on_both_inputs(after)
    assert [v.invariant for v in check(before, after)] == ["residual-skip-only"]
    assert not check(before, after, policy="onnxruntime")


@pytest.mark.parametrize("inputs", ["a, b", "b, a"])
@pytest.mark.parametrize(("kernel", "is_tie"), [((16, 16, 3, 3), True), ((16, 16, 1, 1), False)])
def test_of_a_tie_either_input_may_be_the_skip(inputs: str, kernel: tuple[int, ...], is_tie: bool) -> None:
    """Two convolutions of one input each: of the same size, or one smaller than the other, whose result is the skip."""
    before = text_model(
        f"a = Conv(x, w1) b = Conv(z, w2) y = Add({inputs})", "float[1,16,8,8] x, float[1,16,8,8] z", w2=kernel
    )
    after = quantize_int8(before).model
    assert not check(before, after)
    add = node(after, "y")
    (skip,) = (slot for slot, name in enumerate(add.input) if name not in ("a", "b"))
    tensor = inputs.split(", ")[skip]
    add.input[skip] = tensor
    assert [v.invariant for v in check(before, after, only=["residual-skip-only"])] == ["residual-skip-only"]
    insert_pair(after, add, 1 - skip)
    assert bool(check(before, after, only=["residual-skip-only"])) != is_tie
    add.input[skip] = pair_nodes(after, tensor)[1].output[0]
    assert [v.invariant for v in check(before, after, only=["residual-skip-only"])] == ["residual-skip-only"]


def test_quantized_inputs_by_node() -> None:
    before = float_model()
    found = quantized_inputs(ModelPair(before, quantized(before)))
    assert found["t"] == ["s"]
    assert found["a"] == ["s", "w1"]
    assert found["y"] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"policy": "tensor"}, "tensorrt"),
        ({"only": ["residual-skip"]}, "residual-skip-only"),
        ({"only": ["valid", "nonsense"]}, "nonsense"),
    ],
)
def test_unknown_names_are_usage_errors(arguments: dict[str, object], says: str) -> None:
    model = float_model()
    with pytest.raises(UsageError, match=says):
        check(model, model, **arguments)  # type: ignore[arg-type]


def test_a_broken_float_model_is_an_invalid_model() -> None:
    broken = float_model()
    node(broken, "conv1").input[0] = "nowhere"
    with pytest.raises(InvalidModelError, match="nowhere"):
        check(broken, quantized(float_model()))


def test_neither_model_is_changed() -> None:
    before = float_model()
    after = quantized(before)
    states = [m.SerializeToString(deterministic=True) for m in (before, after)]
    check(before, after)
    assert [m.SerializeToString(deterministic=True) for m in (before, after)] == states
