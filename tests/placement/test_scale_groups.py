"""P5: tensors that must share a scale, because quantization moves across copy ops between them."""

from __future__ import annotations

import pytest

from text_models import placed, text_model

HALF = "float[1,8,8,8]"


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
