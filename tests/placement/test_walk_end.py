"""What an explanation says about Adds: where the walk back stopped, and what a rule that nearly applied lacked."""

from __future__ import annotations

from typing import Any

import pytest

from onnxq.placement import ResidualAdd
from text_models import placed, swap, text_model


def found(body: str, **model: Any) -> ResidualAdd:
    """What is found out about the Add that yields y."""
    return next(r for r, output in _residuals(text_model(body, **model)) if output == "y")


def _residuals(model: Any) -> list[tuple[ResidualAdd, str]]:
    placement = placed(model)
    return [(residual, placement.nodes[residual.node].output) for residual in placement.residuals]


@pytest.mark.parametrize(
    ("body", "stop"),
    [
        ("y = Add(x, z)", 'the input "x" of the graph'),
        ("s = Relu(x) t = Transpose(s) u = Transpose(t) y = Add(u, z)", 'the input "x" of the graph'),
        ("a = Conv(x, w1) s = Add(a, x) r = Relu(s) y = Add(r, z)", 'Add "s", a second Add'),
        ("a = Conv(x, w1) s = Sum(a, x) y = Add(s, z)", 'Sum "s", a second Sum'),
        ("a = Conv(x, w1) s = Mul(a, x) y = Add(s, z)", 'Mul "s", which combines 2 computed tensors'),
        ("a = Conv(x, w1) s = Softmax(a) y = Add(s, z)", 'Softmax "s", which is neither an epilogue nor a copy'),
        ("a = Conv(x, w1) s = Exp(a) y = Add(s, z)", 'Exp "s", which no kernel applies to its result'),
        ("a = Conv(x, w1) s = Div(v1, a) y = Add(s, z)", 'Div "s", which divides a constant by it'),
        ("s = MatMul(x, m) y = Add(s, z)", 'MatMul "s", which is no convolution'),
        (
            "a = Conv(x, w1) s = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(a) y = Add(s, z)",
            'MaxPool "s", which follows no activation',
        ),
        (
            "a = Conv(x, k1) b = Conv(x, k2) s = Concat<axis=1>(a, b) y = Add(s, z)",
            'Concat "s", whose inputs lead to different convolutions',
        ),
        ("a = Conv(x, w1) s = custom.Relu(a) y = Add(s, z)", 'Relu "s", an operator of the domain "custom"'),
        (
            "a = Conv(x, k3) s = Mul(a, v1) y = Add(s, z)",
            'Mul "s", whose constant operand widens it',
        ),
    ],
)
def test_where_the_walk_back_stops(body: str, stop: str) -> None:
    shapes: dict[str, tuple[int, ...]] = {"m": (8, 8), "k1": (8, 16, 1, 1), "k2": (8, 16, 1, 1), "k3": (1, 16, 1, 1)}
    model = text_model(body, inputs="float[1,16,8,8] x, float[1,16,8,8] z", **shapes)
    residual = next(r for r, output in _residuals(model) if output == "y")
    one = residual.inputs[0]
    assert (one.backbone, one.stop) == (None, stop)
    assert f"input 0 has no backbone, the walk back from it stops at {stop}" in residual.why
    swapped = next(r for r, output in _residuals(swap(model, "y")) if output == "y")
    assert swapped.inputs == tuple(reversed(residual.inputs))
    assert f"input 1 has no backbone, the walk back from it stops at {stop}" in swapped.why


def test_a_constant_ends_the_walk() -> None:
    residual = found(
        "s = Concat<axis=1>(k1, x) y = Add(s, z)",
        inputs="float[1,8,8,8] x, float[1,16,8,8] z",
        k1=(1, 8, 8, 8),
    )
    assert residual.inputs[0].stop == 'the constant "k1"'


def test_what_a_body_takes_from_outside_ends_the_walk() -> None:
    model = text_model(
        "a = Conv(x, w1) "
        "y = If<then_branch = t () => (float[1,16,8,8] s) { b = Conv(x, w1) s = Add(a, b) }, "
        "else_branch = e () => (float[1,16,8,8] r) { r = Relu(a) }>(p)",
        inputs="float[1,16,8,8] x, bool p",
    )
    (residual,) = placed(model).residuals
    assert residual.inputs[0].stop == '"a", which the body takes from outside'
    assert residual.inputs[1].backbone is not None


def test_an_add_that_would_be_residual_but_broadcasts_says_so() -> None:
    body = "a = Conv(x, w1) y = Add(a, z)"
    residual = found(body, inputs="float[1,16,8,8] x, float[1,16,1,1] z")
    assert residual.rule.name == "R1"
    assert residual.why.startswith("it would be residual, but it broadcasts: its inputs are float[1, 16, 8, 8] and")
    assert 'input 0 has backbone "a", which can run last' in residual.why
    assert not residual.is_residual


def test_an_add_that_broadcasts_and_has_no_backbone_only_broadcasts() -> None:
    residual = found("y = Add(x, z)", inputs="float[1,16,8,8] x, float[1,16,1,1] z")
    assert residual.why.startswith("it broadcasts: ")


def test_the_longer_branch_is_told_with_the_numbers_and_the_fork() -> None:
    residual = found("f = Relu(x) a = Conv(f, w1) r = Relu(a) b = Conv(r, w2) s = Conv(f, w3) y = Add(b, s)")
    assert residual.why == (
        'input 0 has backbone "b", which can run last; input 1 has backbone "s", which can run last; '
        'counted from the fork Relu "f", the branch of input 0 is longer: '
        "2 linear ops and 3 nodes against 1 and 1; so the trunk is input 0, the skip is input 1"
    )


def test_the_heavier_branch_is_told_with_the_numbers() -> None:
    residual = found("a = Conv(x, w1) b = Conv(x, k1) y = Add(b, a)")
    assert residual.rule.name == "R7"
    said = "equally long; the branch of input 1 is heavier: 147456 multiply-accumulates and 2304 weights against 16384"
    assert said in residual.why
    assert "counted from the graph's inputs, " in residual.why


def test_an_ancestor_is_told() -> None:
    residual = found("a = Conv(x, w1) r = Relu(a) b = Conv(r, w2) y = Add(r, b)")
    assert residual.why == (
        'input 0 has backbone "a", which input 1 needs; input 1 has backbone "b", which can run last; '
        "so the trunk is input 1, the skip is input 0"
    )
