"""P2, attention: both products of a core over a long sequence stay float."""

from __future__ import annotations

import time

import pytest
from onnx import ModelProto

from onnxq.graph import build_index
from onnxq.placement.attention import long_attention
from onnxq.shapes import prepare
from onnxq.tensor_types import GraphTypes
from text_models import text_model

QKV = "float[B,H,{0},64] q, float[B,H,64,{0}] k, float[B,H,{0},64] v, float[B,1,{0},{0}] m, bool[B,1,{0},{0}] keep"
PLAIN = "s = MatMul(q, k) p = Softmax(s) y = MatMul(p, v)"
FOURTH = "i = Constant<value_ints = [4]>()"
LONG = "attention over 600 positions, fused int8 kernels serve up to 512"
UNKNOWN = "attention over an unknown number of positions, fused int8 kernels serve up to 512"


def found(model: ModelProto) -> dict[str, str]:
    """First output of each product of a long core -> its length, in words."""
    prepared = prepare(model, min_opset=13)
    index = build_index(prepared.model, prepared.types)
    return {index.nodes[node].output[0]: why for node, why in long_attention(index).items()}


def core(body: str, length: int | str = 600) -> dict[str, str]:
    return found(text_model(body, QKV.format(length), "float y"))


@pytest.mark.parametrize(
    "body",
    [
        PLAIN,
        "s = MatMul(q, k) d = Div(s, c) a = Add(d, m) p = Softmax<axis = 3>(a) r = Dropout(p) y = MatMul(r, v)",
        "s = MatMul(q, k) d = Mul(c, s) a = Add(m, d) p = Softmax(a) y = MatMul(p, v)",
        "s = MatMul(q, k) a = Where(keep, s, c) p = Softmax(a) o = Where(keep, p, c) y = MatMul(o, v)",
        "s = MatMul(q, k) a = Where(keep, c, s) p = Softmax(a) o = Where(keep, c, p) y = MatMul(o, v)",
        "s = MatMul(q, k) f = Cast<to = 1>(s) i = Identity(f) p = Softmax(i) g = Cast<to = 1>(p) y = MatMul(g, v)",
        f"{FOURTH} s = MatMul(q, k) t = Unsqueeze(s, i) u = Squeeze(t, i) p = Softmax(u) y = MatMul(p, v)",
        "s = MatMul(q, k) t = Transpose<perm = [0,1,3,2]>(s) p = Softmax<axis = 2>(t) y = MatMul(k, p)",
        "s = MatMul(q, k) t = Exp(s) p = Softmax(s) o = Exp(p) y = MatMul(p, v)",
    ],
    ids=[
        "plain",
        "mask and scale",
        "swapped",
        "where",
        "swapped where",
        "cast",
        "squeeze",
        "transposed",
        "other readers",
    ],
)
def test_both_products_of_a_long_core(body: str) -> None:
    assert core(body) == {"s": LONG, "y": LONG}


@pytest.mark.parametrize("length", [16, 512])
def test_a_core_of_known_length_within_the_limit_is_left_alone(length: int) -> None:
    assert core(PLAIN, length) == {}


def test_the_first_length_that_is_too_long() -> None:
    assert core(PLAIN, 513).keys() == {"s", "y"}


def test_an_unknown_length_counts_as_long() -> None:
    assert core(PLAIN, "T") == {"s": UNKNOWN, "y": UNKNOWN}
    made = text_model("s = MatMul(q, u) p = Softmax(s) y = MatMul(p, v) u = custom.Make(k)", QKV.format(16), "float y")
    assert found(made) == {"s": UNKNOWN, "y": UNKNOWN}


def test_the_length_is_that_of_the_keys() -> None:
    few_queries = "float[1,8,16,64] q, float[1,8,64,600] k, float[1,8,600,64] v"
    assert found(text_model(PLAIN, few_queries, "float y")) == {"s": LONG, "y": LONG}
    few_keys = "float[1,8,600,64] q, float[1,8,64,16] k, float[1,8,16,64] v"
    assert found(text_model(PLAIN, few_keys, "float y")) == {}
    over_queries = "s = MatMul(q, k) p = Softmax<axis = -2>(s) y = MatMul(p, v)"
    assert found(text_model(over_queries, few_keys, "float y")) == {"s": LONG, "y": LONG}


@pytest.mark.parametrize(
    "body",
    [
        "s = MatMul(q, k) p = Softmax(s) y = MatMul(p, w)",
        "s = MatMul(m, w) p = Softmax(s) y = MatMul(p, v)",
        "s = MatMul(q, k) p = Softmax(s) y = Exp(p)",
        "s = MatMul(q, k) y = MatMul(s, v)",
        "s = MatMul(q, k) p = Relu(s) y = MatMul(p, v)",
        "s = MatMul(q, k) t = Exp(s) p = Softmax(t) y = MatMul(p, v)",
        "s = MatMul(q, k) p = Softmax(s) t = Exp(p) y = MatMul(t, v)",
        "s = MatMul(q, k) p = LogSoftmax(s) y = MatMul(p, v)",
        "s = MatMul(q, k) d = Div(m, s) p = Softmax(d) y = MatMul(p, v)",
        "s = MatMul(q, k) p = custom.Softmax(s) y = MatMul(p, v)",
    ],
    ids=[
        "weight behind",
        "weight before",
        "one product",
        "no softmax",
        "relu",
        "exp before",
        "exp behind",
        "logarithm",
        "denominator",
        "domain",
    ],
)
def test_what_is_no_core(body: str) -> None:
    assert found(text_model(body, QKV.format(600), "float y", w=(600, 600))) == {}


def test_scores_of_several_products_count_each() -> None:
    """Relative positions: a sum of two products is what the Softmax reads."""
    body = "s = MatMul(q, k) r = MatMul(v, k) a = Add(s, r) p = Softmax(a) y = MatMul(p, v)"
    assert core(body).keys() == {"s", "r", "y"}
    assert core(body.replace("Add(s, r)", "Add(r, s)")).keys() == {"s", "r", "y"}


def test_a_core_that_feeds_a_core() -> None:
    body = f"{PLAIN.replace('y =', 'z =')} t = MatMul(z, k) o = Softmax(t) y = MatMul(o, v)"
    assert core(body).keys() == {"s", "z", "t", "y"}
    short = "float[1,2,600,64] q, float[1,2,64,600] k, float[1,2,600,64] v, float[1,2,64,16] a, float[1,2,16,64] b"
    mixed = "s = MatMul(q, k) p = Softmax(s) z = MatMul(p, v) t = MatMul(z, a) o = Softmax(t) y = MatMul(o, b)"
    assert found(text_model(mixed, short, "float y")) == {"s": LONG, "z": LONG}


def test_no_core_reaches_into_a_body() -> None:
    body = (
        "s = MatMul(q, k) y = If(c) <then_branch = g () => (float r) { p = Softmax(s) r = MatMul(p, v) },"
        " else_branch = h () => (float o) { e = MatMul(q, k) f = Softmax(e) o = MatMul(f, v) }>"
    )
    assert found(text_model(body, QKV.format(600) + ", bool c", "float y")) == {"e": LONG, "o": LONG}


def test_names_mean_nothing() -> None:
    model = text_model("[n] s = MatMul(q, k) [n] p = Softmax(s) [n] y = MatMul(p, v)", QKV.format(600), "float y")
    model.graph.node[0].ClearField("name")
    assert found(model).keys() == {"s", "y"}


def test_the_time_is_linear_in_the_graph() -> None:
    def seconds(cores: int) -> float:
        layers = [f"s{i} = MatMul(t{i}, k) p{i} = Softmax(s{i}) t{i + 1} = MatMul(p{i}, v)" for i in range(cores)]
        index = build_index(
            text_model(f"t0 = Identity(q) {' '.join(layers)} y = Identity(t{cores})", QKV.format(600), "float y"),
            GraphTypes(),
        )
        start = time.perf_counter()
        assert len(long_attention(index)) == 2 * cores
        return time.perf_counter() - start

    seconds(100)
    assert min(seconds(4000) for _ in range(3)) < 40 * max(min(seconds(400) for _ in range(3)), 1e-4)
