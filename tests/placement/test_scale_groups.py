"""P5: tensors that must share a scale, because quantization moves across copy ops between them."""

from __future__ import annotations

import time

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, helper, numpy_helper

from text_models import placed, quantize_int8, text_model

MAX = "MaxPool<kernel_shape = [3,3], pads = [1,1,1,1]>"


@pytest.mark.parametrize(
    ("body", "groups"),
    [
        ("a = Relu(x) b = Conv(a, w1) y = Conv(b, w2)", set()),
        ("a = Conv(x, w1) t = Transpose<perm = [0,1,3,2]>(a) b = Conv(a, w2) c = Conv(t, w3) y = Mul(b, c)", {"a t"}),
        ("a = Conv(x, w1) t = Transpose<perm = [0,1,3,2]>(a) y = Conv(t, w3)", set()),
        (
            """a = Relu(x) i = Identity(a) j = Identity(i) k = Flatten(j) b = Conv(a, w1) c = Conv(j, w2)
            y = Mul(b, c)""",
            {"a j"},
        ),
        (
            """p = Relu(x) q = Tanh(x) c = Concat<axis = 1>(p, q) a = Conv(p, w1) b = Conv(q, w2) d = Conv(c, w9)
            m = Mul(a, b) y = Mul(m, d)""",
            {"p q c"},
        ),
        (
            "p = Relu(x) q = Tanh(x) c = Concat<axis = 1>(p, q) a = Conv(p, w1) b = Conv(q, w2) y = Mul(a, b)",
            set(),
        ),
        (
            "p, q = Split<axis = 1>(x) a = Conv(p, w8) b = Conv(q, w7) y = Concat<axis = 1>(a, b)",
            set(),
        ),
        (
            """n = Conv(x, w1) p, q = Split<axis = 1>(x) a = Conv(p, w8) b = Conv(q, w7)
            m = Concat<axis = 1>(a, b) y = Mul(m, n)""",
            {"x p q"},
        ),
    ],
    ids=["none", "both sides", "one side", "chain", "concat", "concat unread", "split", "split of quantized"],
)
def test_groups(body: str, groups: set[str]) -> None:
    model = text_model(body, w9=(16, 32, 3, 3), w8=(8, 8, 3, 3), w7=(8, 8, 3, 3))
    found = placed(model).scale_groups
    assert {frozenset(g) for g in found} == {frozenset(g.split()) for g in groups}


def test_resize_nearest_shares_and_linear_does_not() -> None:
    body = """sc = Constant<value_floats = [1.0,1.0,1.0,1.0]>() r = Resize<mode = "{}">(x, , sc)
        a = Conv(x, w1) b = Conv(r, w2) y = Mul(a, b)"""
    assert placed(text_model(body.format("nearest"))).scale_groups == (("x", "r"),)
    assert placed(text_model(body.format("linear"))).scale_groups == ()


OVERLAPPING = """p = Relu(x) q = Tanh(x) r = Sigmoid(x)
    c = Concat<axis = 1>(p, q) d = Concat<axis = 1>(q, r)
    e = Conv(c, w9) f = Conv(d, w9) a = Conv(p, w1) b = Conv(r, w2)
    m = Mul(e, f) n = Mul(a, b) """


def test_two_concats_of_one_quantized_tensor_make_one_group() -> None:
    model = text_model(OVERLAPPING + "g = Conv(q, w3) o = Mul(m, n) y = Mul(o, g)", w9=(16, 32, 3, 3))
    (group,) = placed(model).scale_groups
    assert set(group) == {"p", "q", "r", "c", "d"}


def test_two_concats_of_one_float_tensor_keep_their_own_scales() -> None:
    model = text_model(OVERLAPPING + "y = Mul(m, n)", w9=(16, 32, 3, 3))
    assert set(placed(model).scale_groups) == {("p", "c"), ("r", "d")}


def test_a_long_chain_of_copies_is_walked_once() -> None:
    steps = " ".join(f"p{n}, q{n} = Split<axis = 1>(u{n}) u{n + 1} = Concat<axis = 1>(q{n}, p{n})" for n in range(500))
    model = text_model(f"u0 = Relu(x) {steps} a = Conv(u0, w1) b = Conv(u500, w2) y = Mul(a, b)")
    assert placed(model).scale_groups == (("u0", "u500"),)


def written_scales(quantized: ModelProto) -> dict[str, float]:
    """Quantized tensor -> the one scale of its QuantizeLinear."""
    stored = {t.name: numpy_helper.to_array(t) for t in quantized.graph.initializer}
    nodes = [node for node in quantized.graph.node if node.op_type == "QuantizeLinear"]
    return {node.input[0]: float(stored[node.input[1]]) for node in nodes if stored[node.input[1]].ndim == 0}


def values_of(model: ModelProto, tensors: list[str], feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the tensors are in the float model."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    del watched.graph.output[:]
    watched.graph.output.extend(helper.make_empty_tensor_value_info(t) for t in tensors)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(watched.SerializeToString(), options, ["CPUExecutionProvider"])
    return dict(zip(tensors, session.run(None, feeds), strict=True))


# Each: the model's body, and the tensors that must have one scale. Their magnitudes differ: t is 8 times x, and so on.
EIGHT = "c8 = Constant<value_float = 8.0>() "
SHARED = [
    ("t = Mul(x, c8) j = Concat<axis = 1>(x, t) a = Conv(x, k1) b = Conv(t, k2) y = Conv(j, k32)", "x t j"),
    (
        """t = Mul(x, c8) i = Concat<axis = 1>(x, t) u = Mul(t, c8) j = Concat<axis = 1>(u, i) a = Conv(x, k1)
        b = Conv(u, k2) y = Conv(j, k48)""",
        "x u j",
    ),
    (
        """t = Mul(x, c8) i = Concat<axis = 1>(x, t) j = Concat<axis = 1>(i, i) a = Conv(t, k1) b = Conv(i, k32)
        y = Conv(j, k64)""",
        "t i j",
    ),
    ("t = Mul(x, c8) j = Concat<axis = 1>(t, t) a = Conv(t, k1) y = Conv(j, k32)", "t j"),
    ("k = Mul(x1, c8) j = Concat<axis = 1>(k, x) a = Conv(x, k1) y = Conv(j, k32)", "x j"),
    (
        """t = Mul(x, c8) p, q = Split<axis = 1>(t) u = Mul(p, c8) j = Concat<axis = 1>(u, q) a = Conv(q, k8)
        b = Conv(t, k1) y = Conv(j, k16)""",
        "t q j",
    ),
    ("t = Mul(x, c8) p, q = Split<axis = 1>(t) j = Concat<axis = 1>(q, p) a = Conv(t, k1) y = Conv(j, k16)", "t j"),
    (
        """sc = Constant<value_floats = [1.0,1.0,1.0,1.0]>() r = Resize<mode = "nearest">(x, , sc) t = Mul(x, c8)
        j = Concat<axis = 1>(r, t) a = Conv(x, k1) y = Conv(j, k32)""",
        "x j",
    ),
    (
        """from = Constant<value_ints = [4]>() to = Constant<value_ints = [16]>() ax = Constant<value_ints = [1]>()
        u = Concat<axis = 1>(x, x) s = Slice(x, from, to, ax) a = Conv(x, k1) y = Conv(s, k12)""",
        "x s",
    ),
    (f"p = {MAX}(x) e = Exp(p) j = Concat<axis = 1>(p, e) b = Conv(x, k1) y = Conv(j, k32)", "x j"),
    (f"e = Mul(x, c8) p = {MAX}(e) b = Conv(e, k1) y = Conv(p, k2)", "e p"),
    ("e = Mul(x, c8) p = GlobalMaxPool(e) b = Conv(e, k1) y = Conv(p, k2)", "e p"),
]


@pytest.mark.parametrize(
    ("body", "members"),
    SHARED,
    ids=[
        "concat",
        "nested",
        "nested twice",
        "of one tensor twice",
        "with a constant",
        "split of a member",
        "split diamond",
        "resize",
        "slice",
        "pool before concat",
        "max pool",
        "global max pool",
    ],
)
def test_written_scales_are_equal_and_clip_no_member(body: str, members: str) -> None:
    kernels = {f"k{n}": (16, n, 1, 1) for n in (8, 12, 16, 32, 48, 64)}
    model = text_model(EIGHT + body, outputs="float y", x1=(1, 16, 8, 8), **kernels)
    data = np.random.default_rng(1).standard_normal((1, 16, 8, 8)).astype(np.float32)
    scales = written_scales(quantize_int8(model, calibration_data={"x": data}).model)
    assert len({scales[name] for name in members.split()}) == 1
    for value in values_of(model, members.split(), {"x": data}).values():
        assert np.abs(value).max() <= scales[members.split()[0]] * 127 * (1 + 1e-6)


@pytest.mark.parametrize("operands", ["t, u", "u, t"])
def test_what_a_concat_that_was_asked_for_reads_has_one_scale(operands: str) -> None:
    model = text_model(f"t = Exp(x) u = Tanh(x) j = Concat<axis = 1>({operands}) y = Relu(j)", outputs="float y")
    assert placed(model).scale_groups == ()
    assert placed(model, op_types_to_quantize=["Concat"]).scale_groups == (("t", "u"),)


def test_an_average_shares_no_scale() -> None:
    body = "p = AveragePool<kernel_shape = [3,3]>(x) b = Conv(x, k1) y = Conv(p, k2)"
    assert placed(text_model(body, outputs="float y")).scale_groups == ()


@pytest.mark.parametrize("split", [True, False])
def test_diamonds_take_linear_time(split: bool) -> None:
    """Each level joins two copies of the one before it: walking all paths would take 2 ** levels steps."""

    def seconds(levels: int) -> float:
        step = (
            "p{0}, q{0} = Split<axis = 1>(u{0}) u{1} = Concat<axis = 1>(q{0}, p{0})"
            if split
            else "p{0} = Concat<axis = 2>(u{0}, u{0}) u{1}, q{0} = Split<axis = 2>(p{0})"
        )
        steps = " ".join(step.format(n, n + 1) for n in range(levels))
        model = text_model(f"u0 = Exp(x) {steps} a = Conv(u0, w1) b = Conv(u{levels}, w2) y = Mul(a, b)")
        start = time.perf_counter()
        assert placed(model).scale_groups == (("u0", f"u{levels}"),)
        return time.perf_counter() - start

    assert seconds(1000) < 100 * seconds(100) + 1
