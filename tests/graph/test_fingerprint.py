from __future__ import annotations

from random import Random

import onnx
import pytest
from onnx.parser import parse_model

from onnxq.graph import Fingerprints, GraphIndex, build_fingerprints, build_index
from onnxq.shapes import prepare

HEAD = '<ir_version: 8, opset_import: ["": 17]> '
BASE = """g (float[2,3] x) => (float[2,3] y) <float[3] w = {1, 2, 3}, float[3] v = {1, 2, 4}> {
    a = Mul(x, w) b = Sub(x, v) c = Add(a, b) y = LeakyRelu<alpha = 0.5>(c) }"""


def fingerprints(model: onnx.ModelProto) -> tuple[GraphIndex, Fingerprints]:
    prepared = prepare(model)
    index = build_index(prepared.model, prepared.types)
    return index, build_fingerprints(index)


def of_output(text: str) -> bytes:
    index, found = fingerprints(parse_model(HEAD + text))
    return found.computed_by[index.is_output.index(True)]


def of_input(text: str) -> bytes:
    index, found = fingerprints(parse_model(HEAD + text))
    return found.read_by[index.graph_inputs[0]]


@pytest.mark.parametrize(
    "changed",
    [
        BASE.replace("Mul(x, w)", "Mul(w, x)"),
        BASE.replace("Add(a, b)", "Add(b, a)"),
        BASE.replace("a = Mul(x, w) b = Sub(x, v)", "b = Sub(x, v) a = Mul(x, w)"),
        BASE.replace("x", "input").replace("w", "weight").replace("v", "other").replace("c", "sum"),
        BASE.replace(", float[3] v = {1, 2, 4}", "").replace("{\n", "{ v = Constant<value = float[3] {1, 2, 4}>() "),
        BASE.replace("Add(a, b)", "Add(i, b)").replace("c =", "i = Identity(a) c ="),
        BASE.replace("Mul(x, w)", "Mul(x, j)").replace(" a = Mul", " j = Identity(w) a = Mul"),
        BASE.replace("y = Leaky", "d = Relu(a) e = Relu(d) y = Leaky"),
    ],
    ids=["swap", "swap-add", "order", "names", "constant-node", "identity", "identity-of-weight", "dead-nodes"],
)
def test_what_means_nothing_leaves_no_trace(changed: str) -> None:
    assert of_output(changed) == of_output(BASE)
    assert of_input(changed) == of_input(BASE)


@pytest.mark.parametrize(
    "changed",
    [
        BASE.replace("Sub(x, v)", "Sub(v, x)"),
        BASE.replace("{1, 2, 4}", "{1, 2, 5}"),
        BASE.replace("alpha = 0.5", "alpha = 0.25"),
        BASE.replace("Add(a, b)", "Max(a, b)"),
        BASE.replace("float[3] v = {1, 2, 4}", "float[1,3] v = {1, 2, 4}"),
        BASE.replace("float[2,3] x", "float[4,3] x").replace("float[2,3] y", "float[4,3] y"),
    ],
    ids=["swap-sub", "weight", "attribute", "operator", "weight-shape", "input-shape"],
)
def test_what_means_something_shows(changed: str) -> None:
    assert of_output(changed) != of_output(BASE)
    if "float[4,3]" not in changed:
        assert of_input(changed) != of_input(BASE)


def test_the_outputs_of_one_node_differ() -> None:
    index, found = fingerprints(parse_model(HEAD + "g (float[4] x) => (float[2] a, float[2] b) { a, b = Split(x) }"))
    assert len({found.computed_by[t] for t in index.outputs[0]}) == 2


def test_equal_tensors_with_different_readers_are_told_apart_by_what_reads_them() -> None:
    text = "g (float[2] x, float[2] z) => (float[2] y) { a = Relu(x) b = Relu(z) c = Neg(b) y = Sub(a, c) }"
    index, found = fingerprints(parse_model(HEAD + text))
    a, b = index.outputs[0][0], index.outputs[1][0]
    assert found.computed_by[a] == found.computed_by[b]
    assert found.read_by[a] != found.read_by[b]


def test_names_inside_bodies_leave_no_trace() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) { y = If(c) <
        then_branch = t () => (float[2] a) { a = Neg(x) }, else_branch = e () => (float[2] b) { b = Abs(x) }> }"""
    assert of_output(text) == of_output(text.replace(" a", " other").replace(" e ()", " name ()"))


@pytest.mark.parametrize("op", ["Mul", "Concat"])
def test_a_long_chain_of_diamonds_is_walked_once(op: str) -> None:
    """Every step doubles the number of paths: who walks paths never finishes."""
    steps = 2_000
    nodes, inputs = [], "x0"
    for step in range(steps):
        if op == "Mul":
            nodes.append(f"x{step + 1} = Mul(x{step}, x{step})")
        else:
            nodes.append(f"a{step}, b{step} = Split(x{step}) x{step + 1} = Concat<axis = 0>(b{step}, a{step})")
    text = f"g (float[4] {inputs}) => (float[4] x{steps}) {{ {' '.join(nodes)} }}"
    model = parse_model(HEAD + text)
    _, found = fingerprints(model)
    assert len(set(found.computed_by)) == len(found.computed_by)


def test_node_order_leaves_no_trace() -> None:
    nodes = [f"t{n} = LeakyRelu<alpha = 0.{n + 1}>(x)" for n in range(8)]
    total = ", ".join(f"t{n}" for n in range(8))
    digests = set()
    for seed in range(4):
        Random(seed).shuffle(nodes)
        digests.add(of_output(f"g (float[2] x) => (float[2] y) {{ {' '.join(nodes)} y = Sum({total}) }}"))
    assert len(digests) == 1
