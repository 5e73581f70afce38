"""P2, sizes: Convs, Gemms and MatMuls that int8 kernels don't serve."""

from __future__ import annotations

import time

import onnx
import pytest
from onnx import ModelProto

from onnxq.graph import build_index
from onnxq.placement.unserved import unserved
from onnxq.shapes import prepare
from onnxq.tensor_types import GraphTypes
from text_models import text_model

OPEN = "float[N,C,H,W] x"


def found(model: ModelProto) -> dict[str, str]:
    """First output of each node that isn't served -> why."""
    prepared = prepare(model, min_opset=13)
    index = build_index(prepared.model, prepared.types)
    return {index.nodes[node].output[0]: why for node, why in unserved(index).items()}


def conv(shape: tuple[int, ...], group: int = 1, *, first: bool = False) -> str:
    """What is wrong with a convolution of this weight, alone or behind something else."""
    inputs = ", ".join(["N", str(shape[1] * group), *"ABC"[: len(shape) - 2]])
    body = f"e = {'Identity' if first else 'Exp'}(x) y = Conv<group = {group}>(e, w)"
    return found(text_model(body, f"float[{inputs}] x", "float y", w=shape)).get("y", "")


@pytest.mark.parametrize(
    ("shape", "group", "first"),
    [
        ((16, 16, 1, 1), 1, False),
        ((17, 19, 3, 5), 1, False),
        ((32, 3, 3, 3), 1, True),
        ((8, 3, 3, 3), 1, True),
        ((3, 8, 1, 1), 1, True),
        ((32, 3, 3, 3), 1, False),
        ((3, 16, 3, 3), 1, False),
        ((32, 1, 3, 3), 32, False),
        ((24, 1, 3, 5), 24, False),
        ((32, 16, 1, 1), 2, False),
        ((16, 8, 7), 1, False),
        ((32, 1, 3), 32, False),
        ((32, 3, 3, 3, 3), 1, True),
    ],
)
def test_served(shape: tuple[int, ...], group: int, first: bool) -> None:
    assert conv(shape, group, first=first) == ""


@pytest.mark.parametrize(
    ("shape", "group", "first", "why"),
    [
        ((30, 3, 3, 3), 1, True, "3 input channels, int8 kernels want 16 or multiples of 8"),
        (
            (12, 32, 3, 5),
            1,
            False,
            "12 output channels, int8 kernels want 16, or a kernel of equal sides instead of 3x5",
        ),
        ((32, 3, 3, 5), 1, True, "3 input channels, int8 kernels want 16, or a kernel of equal sides instead of 3x5"),
        ((8, 8, 3, 3), 1, False, "8 output channels, int8 kernels want 16"),
        ((8, 3, 3, 3), 1, False, "8 output channels, int8 kernels want 16"),
        ((1, 20, 1, 1), 1, False, "1 output channel, int8 kernels want 16 or multiples of 8"),
        (
            (32, 1, 1, 1),
            32,
            False,
            "1 input channel a group, int8 kernels want 16, or a kernel of 3 and more each way instead of 1x1",
        ),
        (
            (20, 12, 3, 3),
            2,
            False,
            "12 input channels a group, int8 kernels want 16, or output channels in multiples of 8 instead of 20",
        ),
        (
            (32, 1, 3, 1),
            32,
            True,
            "1 input channel a group, int8 kernels want 16, or a kernel of 3 and more each way instead of 3x1",
        ),
        (
            (32, 1, 1),
            32,
            False,
            "1 input channel a group, int8 kernels want 16, or a kernel of 3 and more each way instead of 1",
        ),
    ],
)
def test_not_served(shape: tuple[int, ...], group: int, first: bool, why: str) -> None:
    assert conv(shape, group, first=first) == why


@pytest.mark.parametrize(
    ("body", "first"),
    [
        ("y = Conv(x, w)", True),
        ("t = Transpose<perm = [0,1,3,2]>(x) i = Identity(t) y = Conv(i, w)", True),
        ("t = Concat<axis = 2>(x, x) y = Conv(t, w)", True),
        ("e = Relu(x) t = Concat<axis = 2>(x, e) y = Conv(t, w)", False),
        ("e = Relu(x) t = Concat<axis = 2>(e, x) y = Conv(t, w)", False),
        ("e = Relu(x) y = Conv(e, w)", False),
        ("t = Add(x, v) y = Conv(t, w)", False),
    ],
)
def test_what_reads_an_input(body: str, first: bool) -> None:
    model = text_model(body, "float[N,8,H,W] x", "float y", w=(8, 8, 3, 3), v=(8, 1, 1))
    assert ("y" not in found(model)) is first


def test_a_body_reads_what_it_captures_like_an_input() -> None:
    body = (
        "e = Exp(x) f = Conv(x, w) y = If(c) <then_branch = g () => (float r) { r = Conv(e, w) },"
        " else_branch = h () => (float s) { q = Exp(e) s = Conv(q, w) }>"
    )
    model = text_model(body, "float[N,8,H,W] x, bool c", "float y", w=(8, 8, 3, 3))
    assert found(model) == {"s": "8 output channels, int8 kernels want 16"}


def test_the_kernel_is_that_of_the_weight() -> None:
    with_attribute = text_model("y = Conv<kernel_shape = [3,3]>(x, w)", OPEN, "float y", w=(32, 3, 3, 3))
    assert found(with_attribute) == {}
    assert found(text_model("y = Conv<group = 32>(x, w)", OPEN, "float y", w=(32, 1, 1, 1))).keys() == {"y"}
    assert found(text_model("y = Conv<group = 32>(x, w)", OPEN, "float y", w=(32, 1, 3, 3))) == {}


def test_a_weight_of_unknown_shape_is_taken_for_wide() -> None:
    assert found(text_model("y = Conv(x, w)", f"{OPEN}, float[O,I,3,3] w", "float y")) == {}
    assert found(text_model("u = custom.Make(x) y = Conv(x, u)", OPEN, "float y")) == {}


def test_a_weight_that_a_node_yields_has_a_shape_as_well() -> None:
    model = text_model("e = Exp(x) u = Mul(w, b) y = Conv(e, u)", OPEN, "float y", w=(8, 8, 3, 3), b=())
    assert found(model).keys() == {"y"}


def test_a_convtranspose_is_always_served() -> None:
    assert found(text_model("e = Exp(x) y = ConvTranspose(e, w)", OPEN, "float y", w=(3, 5, 3, 3))) == {}


@pytest.mark.parametrize(
    ("node", "left", "right", "why"),
    [
        ("MatMul", "M,16", "16,16", ""),
        ("MatMul", "M,K", "K,N", ""),
        ("MatMul", "B,H,M,64", "B,H,64,N", ""),
        ("MatMul", "M,64", "64,15", "15 columns, int8 kernels want 16"),
        ("MatMul", "M,64", "64,1", "1 column, int8 kernels want 16"),
        ("MatMul", "M,12", "12,64", "12 terms a sum, int8 kernels want 16"),
        ("MatMul", "M,12", "K,64", "12 terms a sum, int8 kernels want 16"),
        ("MatMul", "M,K", "12,64", "12 terms a sum, int8 kernels want 16"),
        ("MatMul", "2,8,1,64", "2,8,64,77", "a single row, which int8 kernels gain nothing for"),
        ("MatMul", "64", "64,77", "a vector times a matrix, which int8 kernels gain nothing for"),
        ("MatMul", "5,64", "64", "a vector times a matrix, which int8 kernels gain nothing for"),
        ("Gemm", "M,64", "64,15", "15 columns, int8 kernels want 16"),
        ("Gemm<transB = 1>", "M,64", "64,15", "15 terms a sum, int8 kernels want 16"),
        ("Gemm<transB = 1>", "M,64", "15,64", "15 columns, int8 kernels want 16"),
        ("Gemm<transA = 1>", "64,1", "64,77", "a single row, which int8 kernels gain nothing for"),
        ("Gemm<transA = 1>", "12,64", "12,64", "12 terms a sum, int8 kernels want 16"),
        ("Gemm<transA = 1>", "64,12", "64,16", ""),
    ],
)
def test_products_of_variables(node: str, left: str, right: str, why: str) -> None:
    model = text_model(f"y = {node}(a, b)", f"float[{left}] a, float[{right}] b", "float y")
    assert found(model).get("y", "") == why


@pytest.mark.parametrize(
    ("node", "data", "weight", "why"),
    [
        ("MatMul(x, w)", "1,64", (64, 32), "a single row, which int8 kernels gain nothing for"),
        ("Gemm(x, w)", "1,64", (64, 32), "a single row, which int8 kernels gain nothing for"),
        ("Gemm<transB = 1>(x, w)", "1,64", (32, 64), "a single row, which int8 kernels gain nothing for"),
        ("MatMul(w, x)", "64,32", (1, 64), "a single row, which int8 kernels gain nothing for"),
        ("MatMul(w, x)", "64,8", (32, 64), "8 columns, int8 kernels want 16"),
        ("MatMul(w, x)", "K,N", (32, 12), "12 terms a sum, int8 kernels want 16"),
        ("MatMul(x, w)", "8,1,64", (64, 32), ""),
        ("MatMul(x, w)", "N,64", (64, 32), ""),
        ("MatMul(x, w)", "N,64", (64, 4), "4 columns, int8 kernels want 16"),
        ("MatMul(w, x)", "64,N", (2, 64), ""),
    ],
)
def test_products_with_a_constant(node: str, data: str, weight: tuple[int, ...], why: str) -> None:
    model = text_model(f"y = {node}", f"float[{data}] x", "float y", w=weight)
    assert found(model).get("y", "") == why


def test_an_operand_of_unknown_rank_is_taken_for_large() -> None:
    assert found(text_model("u = custom.Make(x) y = MatMul(u, w)", OPEN, "float y", w=(64, 32))) == {}
    assert found(text_model("u = custom.Make(x) y = MatMul(u, w)", OPEN, "float y", w=(64, 8))).keys() == {"y"}


def test_an_operator_of_another_domain_is_none_of_ours() -> None:
    assert found(text_model("y = custom.MatMul(x, w)", "float[4,64] x", "float y", w=(64, 2))) == {}


def test_names_mean_nothing() -> None:
    model = text_model("[n] e = Exp(x) [n] y = Conv(e, w)", "float[1,8,8,8] x", "float y", w=(8, 8, 3, 3))
    model.graph.node[1].ClearField("name")
    assert found(model).keys() == {"y"}


def test_constant_nodes_are_weights_too() -> None:
    stored = text_model("e = Exp(x) y = Conv(e, w)", "float[1,8,8,8] x", "float y", w=(8, 8, 3, 3))
    model = onnx.ModelProto()
    model.CopyFrom(stored)
    model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=model.graph.initializer[0]))
    del model.graph.initializer[:]
    assert found(model) == found(stored) != {}


def test_the_time_is_linear_in_the_graph() -> None:
    def seconds(length: int) -> float:
        steps = [f"t{i + 1} = Concat<axis = 2>(t{i}, t{i})" for i in range(length)]
        model = text_model(f"t0 = Identity(x) {' '.join(steps)} y = Conv(t{length}, w)", OPEN, "float y")
        index = build_index(model, GraphTypes())
        start = time.perf_counter()
        unserved(index)
        return time.perf_counter() - start

    seconds(100)
    assert min(seconds(8000) for _ in range(3)) < 40 * max(min(seconds(800) for _ in range(3)), 1e-4)
