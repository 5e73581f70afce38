"""P3: pooling ops follow their neighbours, and a MaxPool that closes a convolution's pattern has no pair of its own."""

from __future__ import annotations

import time
from typing import Any

import pytest

from text_models import placed, quantized_inputs, rules, swap, text_model

MAX = "MaxPool<kernel_shape = [3,3], pads = [1,1,1,1]>"
MEAN = "AveragePool<kernel_shape = [3,3], pads = [1,1,1,1]>"
LP = "LpPool<kernel_shape = [3,3], pads = [1,1,1,1]>"
ANY = "float y"
BATCH = "float[N,16,8,8] x"


def pool_inputs(body: str, outputs: str = ANY, **options: Any) -> list[str]:
    """What the node that yields p reads quantized."""
    return quantized_inputs(text_model(body, outputs=outputs), **options).get("p", [])


@pytest.mark.parametrize("pool", [MAX, MEAN, LP, "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
@pytest.mark.parametrize(
    "body",
    [
        "t = Exp(x) p = {}(t) y = Conv(p, k1)",
        "t = Exp(x) p = {}(t) i = Identity(p) q = Transpose<perm = [0,1,3,2]>(i) y = Conv(q, k1)",
        "t = Conv(x, k1) p = {}(t) y = Exp(p)",
        "c = Conv(x, k1) t = Identity(c) p = {}(t) y = Exp(p)",
        "c = Conv(x, k1) n = BatchNormalization(c, b1, b2, b3, b4) t = Identity(n) p = {}(t) y = Exp(p)",
        "c = Conv(x, k1) a = Add(c, x) t = Relu(a) p = {}(t) y = Exp(p)",
        "c = Conv(x, k1) a = Add(x, c) t = Relu(a) p = {}(t) y = Exp(p)",
        "c = Conv(x, k1) d = Conv(x, k2) t = Concat<axis = 1>(c, d) p = {}(t) y = Exp(p)",
    ],
    ids=["reader", "copies", "conv", "identity", "epilogue", "add", "swapped add", "concat"],
)
def test_a_neighbour_in_int8_takes_the_pool_along(body: str, pool: str) -> None:
    model = text_model(body.format(pool), outputs=ANY)
    assert quantized_inputs(model)["p"] == ["t"]
    assert rules(model)["p", 0] == "P3"


@pytest.mark.parametrize("pool", [MAX, MEAN, LP])
@pytest.mark.parametrize(
    "reader",
    [
        "q = Concat<axis = 1>(x, p, x) y = Conv(q, k48)",
        "c = Conv(x, k2) f = Conv(c, k3) y = Add(f, p)",
        "c = Conv(x, k2) f = Conv(c, k3) y = Add(p, f)",
    ],
    ids=["concat", "skip", "swapped skip"],
)
def test_readers_beside_other_data(reader: str, pool: str) -> None:
    model = text_model(f"t = Exp(x) p = {pool}(t) {reader}", outputs=ANY, k48=(16, 48, 1, 1))
    assert quantized_inputs(model)["p"] == ["t"]


@pytest.mark.parametrize("operands", ["r, s", "s, r"])
def test_an_activation_written_out_belongs_to_the_kernel(operands: str) -> None:
    body = f"c = ConvTranspose(x, k1) r = Mul(c, v1) s = Sigmoid(r) t = Mul({operands}) p = {MEAN}(t) y = Exp(p)"
    assert pool_inputs(body) == ["t"]


@pytest.mark.parametrize("pool", [MAX, MEAN, "GlobalAveragePool"])
@pytest.mark.parametrize(
    "body",
    [
        "t = Exp(x) p = {}(t) y = Exp(p)",
        "t = Exp(x) p = {}(t) r = Relu(p) y = Conv(r, k1)",
        "c = Conv(x, k1) t = Exp(c) p = {}(t) y = Exp(p)",
        "c = Conv(x, k1) a = Add(c, c) t = Relu(a) p = {}(t) y = Exp(p)",
        "c = Conv(x, k1) t = Concat<axis = 1>(c, x) p = {}(t) y = Exp(p)",
        "t = Exp(x) c = Conv(t, k1) p = {}(t) q = Exp(p) y = Mul(c, q)",
    ],
    ids=["none", "relu between", "exp between", "no residual", "half a concat", "sibling"],
)
def test_no_neighbour_in_int8(body: str, pool: str) -> None:
    model = text_model(body.format(pool), outputs=ANY)
    assert "p" not in quantized_inputs(model)
    assert rules(model)["p", 0] == "P3"


@pytest.mark.parametrize("options", [{"nodes_to_exclude": ["c"]}, {"op_types_to_exclude": ["Conv"]}])
def test_a_float_kernel_is_no_neighbour(options: dict[str, Any]) -> None:
    assert not pool_inputs("c = Conv(x, k1) t = Identity(c) p = GlobalAveragePool(t) y = Exp(p)", **options)
    assert not pool_inputs("t = Exp(x) p = GlobalAveragePool(t) c = Conv(p, k1) y = Exp(c)", **options)


def test_a_residual_add_that_stays_float_is_no_neighbour() -> None:
    body = "[conv] c = Conv(x, k1) a = Add(c, x) p = GlobalAveragePool(a) y = Exp(p)"
    assert pool_inputs(body) == ["a"]
    assert pool_inputs(body, nodes_to_exclude=["a"]) == []
    assert pool_inputs(body, nodes_to_exclude=["conv"]) == []


@pytest.mark.parametrize(
    "body",
    [
        "c = Conv(x, k1) t = Relu(c) p = {}(t) y = Conv(p, k2)",
        "c = Conv(x, k1) n = BatchNormalization(c, b1, b2, b3, b4) t = Relu(n) p = {}(t) y = Conv(p, k2)",
        "c = Conv(x, k1) s = Sigmoid(c) t = Mul(c, s) p = {}(t) y = Conv(p, k2)",
        "c = Conv(x, k1) s = Sigmoid(c) t = Mul(s, c) i = Identity(t) p = {}(i) y = Conv(p, k2)",
        "c = ConvTranspose(x, k1) r = Relu(c) t = Transpose<perm = [0,1,3,2]>(r) p = {}(t) y = Conv(p, k2)",
    ],
    ids=["relu", "bn", "silu", "silu swapped, identity", "convtranspose, transpose"],
)
def test_a_max_pool_that_closes_a_convolution_has_no_pair(body: str) -> None:
    assert pool_inputs(body.format(MAX)) == []
    assert rules(text_model(body.format(MAX), outputs=ANY))["p", 0] == "P3"
    assert pool_inputs(body.format(MEAN)) != []


def test_a_max_pool_right_behind_a_convolution_closes_nothing() -> None:
    assert pool_inputs(f"c = Conv(x, k1) p = {MAX}(c) y = Conv(p, k2)") == ["c"]


def test_what_closes_a_convolution_stores_int8_too() -> None:
    body = f"c = Conv(x, k1) r = Relu(c) m = {MAX}(r) p = GlobalAveragePool(m) y = Exp(p)"
    assert quantized_inputs(text_model(body, outputs=ANY)) == {"c": ["x", "k1"], "p": ["m"]}


SPPF = f"""c = Conv(x, k1) s = Sigmoid(c) t = Mul({{}}) p1 = {MAX}(t) p2 = {MAX}(p1) p3 = {MAX}(p2)
    j = Concat<axis = 1>(t, p1, p2, p3) y = Conv(j, k64)"""


@pytest.mark.parametrize("operands", ["c, s", "s, c"])
def test_a_chain_of_pools_into_a_concat(operands: str) -> None:
    model = text_model(SPPF.format(operands), k64=(16, 64, 1, 1))
    found = quantized_inputs(model)
    # The first pool closes the convolution's pattern; the others are kernels of their own.
    assert found == {"c": ["x", "k1"], "p2": ["p1"], "p3": ["p2"], "y": ["j", "k64"]}
    assert {frozenset(g) for g in placed(model).scale_groups} == {frozenset({"p1", "p2", "j"})}


def test_pools_behind_a_pool_in_both_directions() -> None:
    forward = f"t = Exp(x) p = {MEAN}(t) q = {MAX}(p) i = Identity(q) y = Conv(i, k1)"
    assert quantized_inputs(text_model(forward)) == {"p": ["t"], "q": ["p"], "y": ["i", "k1"]}
    backward = f"c = Conv(x, k1) p = {MEAN}(c) i = Identity(p) q = {MEAN}(i) y = Exp(q)"
    assert quantized_inputs(text_model(backward)) == {"c": ["x", "k1"], "p": ["c"], "q": ["i"]}
    broken = f"c = Conv(x, k1) p = {MEAN}(c) r = Relu(p) q = {MEAN}(r) y = Exp(q)"
    assert quantized_inputs(text_model(broken)) == {"c": ["x", "k1"], "p": ["c"]}


def test_inceptions_pooling_branch() -> None:
    body = f"""a = Conv(x, k1) ra = Relu(a) b = Conv(x, k2) rb = Relu(b) m = {MEAN}(x) d = Conv(m, k3) rd = Relu(d)
        y = Concat<axis = 1>(ra, rb, rd)"""
    assert quantized_inputs(text_model(body, outputs="float[1,48,8,8] y"))["m"] == ["x"]


def test_densenets_transition() -> None:
    body = """n = BatchNormalization(x, b1, b2, b3, b4) r = Relu(n) t = Conv(r, k1)
        p = AveragePool<kernel_shape = [2,2], strides = [2,2]>(t) n2 = BatchNormalization(p, b1, b2, b3, b4)
        r2 = Relu(n2) c = Conv(r2, k2) y = Concat<axis = 1>(p, c)"""
    assert quantized_inputs(text_model(body, outputs=ANY)) == {"t": ["r", "k1"], "p": ["t"], "c": ["r2", "k2"]}


def test_a_global_pool_before_a_classifier() -> None:
    body = "t = Exp(x) p = {} f = Flatten(p) y = Gemm(f, g1)"
    for pool in ("GlobalAveragePool(t)", "ReduceMean<axes = [2,3]>(t)", "ReduceMean<axes = [-1,-2], keepdims = 0>(t)"):
        model = text_model(body.format(pool), BATCH, ANY, g1=(16, 32))
        assert quantized_inputs(model) == {"p": ["t"], "y": ["f", "g1"]}


AXES = "a = Constant<value_ints = [{}]>() t = Exp(x) p = ReduceMean(t, a) f = Flatten(p) y = Gemm(f, w)"


@pytest.mark.parametrize(
    ("axes", "columns", "is_pool"),
    [("2,3", 16, True), ("3,-2", 16, True), ("2", 128, False), ("1,2,3", 1, False), ("1", 64, False)],
)
def test_reduce_mean_with_axes_as_an_input(axes: str, columns: int, is_pool: bool) -> None:
    model = text_model(AXES.format(axes), BATCH, ANY, opset=18, w=(columns, 32))
    assert ("p" in quantized_inputs(model)) == is_pool
    assert rules(model)["p", 0] == ("P3" if is_pool else "NOT_SELECTED")


def test_reduce_mean_over_all_axes_or_computed_ones_is_no_pool() -> None:
    every = text_model("t = Conv(x, k1) y = ReduceMean(t)", outputs=ANY)
    assert rules(every)["y", 0] == "NOT_SELECTED"
    computed = text_model("t = Conv(x, k1) y = ReduceMean(t, a)", "float[1,16,8,8] x, int64[2] a", ANY, opset=18)
    assert rules(computed)["y", 0] == "NOT_SELECTED"


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_a_mean_of_three_axes_is_no_pool(axis: int) -> None:
    body = f"t = MatMul(x, w1) y = ReduceMean<axes = [{axis}]>(t)"
    tokens = text_model(body, "float[1,32,32] x", ANY, w1=(32, 32))
    assert rules(tokens)["y", 0] == "NOT_SELECTED"


@pytest.mark.parametrize(("axes", "is_pool"), [("2,3,4", True), ("2,3", False)])
def test_a_mean_over_depth_too(axes: str, is_pool: bool) -> None:
    body = f"t = Conv(x, w1) y = ReduceMean<axes = [{axes}]>(t)"
    volume = text_model(body, "float[1,16,4,8,8] x", ANY, w1=(16, 16, 1, 1, 1))
    assert ("y" in quantized_inputs(volume)) == is_pool


@pytest.mark.parametrize("operands", ["t, m", "m, t", "i, m"])
@pytest.mark.parametrize("copies", ["m = Identity(p)", "q = Identity(p) m = Identity(q)"])
def test_the_mean_of_a_normalization_is_no_pool(operands: str, copies: str) -> None:
    body = f"t = Conv(x, k1) i = Identity(t) p = ReduceMean<axes = [2,3]>(t) {copies} y = Sub({operands})"
    model = text_model(body)
    assert quantized_inputs(model) == {"t": ["x", "k1"]}
    assert rules(model)["p", 0] == "NOT_SELECTED"


def test_a_mean_that_is_taken_off_something_else_is_a_pool() -> None:
    body = "t = Conv(x, k1) p = ReduceMean<axes = [2,3]>(t) y = Sub(x, p)"
    assert quantized_inputs(text_model(body))["p"] == ["t"]


@pytest.mark.parametrize("use", ["y = MaxUnpool<kernel_shape = [2,2], strides = [2,2]>(c, i)", "y = Cast<to = 1>(i)"])
def test_indices_that_are_used_keep_the_pool_exact(use: str) -> None:
    body = f"t = Exp(x) p, i = MaxPool<kernel_shape = [2,2], strides = [2,2]>(t) c = Conv(p, k1) {use}"
    for options in ({}, {"op_types_to_quantize": ["Conv", "MaxPool"]}, {"nodes_to_quantize": ["p"]}):
        model = text_model(body, outputs=ANY)
        assert "p" not in quantized_inputs(model, **options)
        assert rules(model, **options)["p", 0] == "P6"


def test_indices_that_are_an_output_keep_the_pool_exact() -> None:
    pool = "MaxPool<kernel_shape = [2,2], strides = [2,2]>(t)"
    assert pool_inputs(f"t = Exp(x) p, i = {pool} y = Conv(p, k1)", "float y, int64[1,16,4,4] i") == []
    assert pool_inputs(f"t = Exp(x) p, i = {pool} y = Conv(p, k1)") == ["t"]


def test_exclusion_and_selection() -> None:
    body = f"t = Exp(x) p = {MAX}(t) y = Conv(p, k1)"
    assert pool_inputs(body) == ["t"]
    assert rules(text_model(body), op_types_to_exclude=["MaxPool"])["p", 0] == "P2"
    assert rules(text_model(body), nodes_to_exclude=["p"])["p", 0] == "P2"
    assert rules(text_model(body), op_types_to_quantize=["Conv"])["p", 0] == "NOT_SELECTED"
    assert rules(text_model(body), op_types_to_quantize=["MaxPool"])["p", 0] == "SELECTED"
    assert pool_inputs(f"c = Conv(x, k1) t = Relu(c) p = {MAX}(t) y = Exp(p)", op_types_to_quantize=["MaxPool"]) == [
        "t"
    ]


def test_float_neighbours_of_a_quantized_pool_read_the_float_tensor() -> None:
    body = "t = Conv(x, k1) p = GlobalAveragePool(t) g = Sigmoid(p) y = Mul(t, g)"
    assert quantized_inputs(text_model(body)) == {"t": ["x", "k1"], "p": ["t"]}


def test_operand_order_of_a_gate_changes_nothing() -> None:
    model = text_model("t = Conv(x, k1) p = GlobalAveragePool(t) c = Conv(p, k2) g = Sigmoid(c) y = Mul(t, g)")
    assert quantized_inputs(swap(model, "y")) == quantized_inputs(model)


def test_names_mean_nothing() -> None:
    body = f"t = Exp(x) p = {MEAN}(t) y = Conv(p, k1)"
    model = text_model(body)
    for name in ("", "Conv_0", "MaxPool"):
        for node in model.graph.node:
            node.name = name
        assert quantized_inputs(model) == {"p": ["t"], "y": ["p", "k1"]}


def test_other_types_and_other_domains_are_left_alone() -> None:
    assert rules(text_model("t = Exp(x) p = custom.MaxPool(t) y = Conv(p, k1)"))["p", 0] == "NOT_SELECTED"
    body = f"d = Cast<to = 11>(x) p = {MEAN}(d) f = Cast<to = 1>(p) y = Conv(f, k1)"
    assert rules(text_model(body))["p", 0] == "P6"


def test_a_cast_between_float_types_is_passed() -> None:
    body = f"c = Conv(x, k1) h = Cast<to = 10>(c) p = {MEAN}(h) y = Exp(p)"
    assert pool_inputs(body) == ["h"]


def test_long_chains_are_walked_once() -> None:
    steps = " ".join(f"u{n + 1} = {MAX}(u{n})" for n in range(1000))
    diamonds = " ".join(
        f"d{n} = Concat<axis = 1>(v{n}, v{n}) v{n + 1}, e{n} = Split<axis = 1>(d{n})" for n in range(1000)
    )
    model = text_model(f"u0 = Exp(x) {steps} v0 = Identity(u1000) {diamonds} y = Conv(v1000, k1)")
    start = time.perf_counter()
    found = quantized_inputs(model)
    assert time.perf_counter() - start < 20
    assert sum(len(read) for read in found.values()) == 1002
