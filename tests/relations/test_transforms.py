"""What the changes of `onnxq.relations` promise: valid models that compute the same, with every wire where it was."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.calibration import make_feeds
from onnxq.invariants import ModelPair
from onnxq.model_io import why_invalid
from onnxq.numerics import run_model
from onnxq.protos import walk_graphs, walk_nodes
from onnxq.relations import decided, storage, transforms
from onnxq.relations.variant import Variant
from onnxq.strategies import LabelledModel, build, precision_models, residual_models
from onnxq.strategies.topology import Block, Topology
from text_models import text_model

sys.path.insert(0, str(Path(__file__).parents[1] / "properties"))
from enclosing import in_loop_in_branch
from model_changes import RELATIONS as BY_NAME

REFUSED_BY_THE_RUNTIME = {"name_nodes_alike", "falsify_value_info"}
MAIN_GRAPH_ONLY = {"list_initializers_as_inputs", "raise_opset"}
"""A body's inputs are what its node passes; and a converter may find nothing to change in a body."""

BODIES = text_model(
    """a = Conv(x, w) b = Conv(x, k1) f = Add(a, b)
    y = If(c) <then_branch = t () => (float[1,16,8,8] p) { p1 = Conv(a, k1) p2 = Mul(p1, f) p = Add(p2, a) },
               else_branch = e () => (float[1,16,8,8] q) { q1 = Neg(f) q = Add(q1, a) }>""",
    "float[1,16,8,8] x, bool c",
)
drawn_models = st.one_of(
    residual_models(max_blocks=5, node_names=("unique", "unnamed")).map(lambda drawn: drawn.model),
    precision_models(max_pieces=4).map(lambda drawn: drawn.model),
    residual_models(max_blocks=3, constants=("initializer",)).map(lambda drawn: in_loop_in_branch(drawn.model)),
    st.just(BODIES),
)


@pytest.mark.parametrize("name", BY_NAME)
@settings(max_examples=5, deadline=None)
@given(model=drawn_models, seed=st.integers(0, 2**16))
def test_the_changed_model_is_valid_and_computes_the_same(name: str, model: onnx.ModelProto, seed: int) -> None:
    before = model.SerializeToString(deterministic=True)
    variant = BY_NAME[name](model, Random(seed))
    assert model.SerializeToString(deterministic=True) == before
    assert BY_NAME[name](model, Random(seed)) == variant
    if not why_invalid(model) and BY_NAME[name] is not storage.falsify_value_info:
        assert not why_invalid(variant.model)
    assert wires(variant) >= wires(Variant(model))
    if name not in REFUSED_BY_THE_RUNTIME and loads(model):
        assert_same_outputs(model, variant)


@settings(max_examples=10, deadline=None)
@given(left=residual_models(max_blocks=4), right=residual_models(max_blocks=4), seed=st.integers(0, 2**16))
def test_a_union_computes_what_both_do(left: LabelledModel, right: LabelledModel, seed: int) -> None:
    mine, its = transforms.union(left.model, right.model, Random(seed))
    onnx.checker.check_model(mine.model, full_check=True)
    assert wires(mine) >= wires(Variant(left.model))
    assert wires(its) >= wires(Variant(right.model))
    if loads(mine.model):
        assert_same_outputs(left.model, mine)


@pytest.mark.parametrize("name", sorted(BY_NAME.keys() - MAIN_GRAPH_ONLY))
def test_bodies_are_changed_as_well(name: str) -> None:
    stored = in_loop_in_branch(build(Topology((Block("bottleneck"),))).model)
    computed = in_loop_in_branch(build(Topology((Block("bottleneck"),), constants="node", node_names="unnamed")).model)
    declared = storage.declare_all(stored, Random(0)).model
    variants = [(m, BY_NAME[name](m, Random(seed)).model) for m in (stored, computed, declared) for seed in range(2)]
    assert any(innermost(model) != innermost(changed) for model, changed in variants)


def test_operands_always_change_places_and_only_of_commutative_nodes() -> None:
    model = text_model(
        "a = Add(x, z) b = Sub(a, z) c = Concat<axis=1>(b, a) y = Mul(c, c)", "float[1,2] x, float[1,2] z"
    )
    swapped = {node.output[0]: list(node.input) for node in transforms.swap_operands(model, Random(0)).model.graph.node}
    assert swapped == {"a": ["z", "x"], "b": ["a", "z"], "c": ["b", "a"], "y": ["c", "c"]}


def test_a_body_that_captures_keeps_its_node_behind_the_producer() -> None:
    changed = [transforms.reorder_nodes(BODIES, Random(seed)).model for seed in range(9)]
    orders = {tuple(node.output[0] for node in model.graph.node) for model in changed}
    assert orders == {("a", "b", "f", "y"), ("b", "a", "f", "y")}


def innermost(model: onnx.ModelProto) -> onnx.GraphProto:
    return max(walk_graphs(model.graph), key=lambda graph: len(graph.node))


def wires(variant: Variant) -> set[object]:
    """The wires of a model, in its old names."""
    return set(decided(ModelPair(variant.model, variant.model), variant.old_names))


def loads(model: onnx.ModelProto) -> bool:
    """Whether all nodes of the model don't have one name."""
    names = [node.name for node in walk_nodes(model.graph.node) if node.name]
    return len(set(names)) == len(names)


def assert_same_outputs(model: onnx.ModelProto, variant: Variant) -> None:
    feeds = list(make_feeds(model, None))
    new_names = {old: new for new, old in variant.old_names.items() if not new.startswith("inserted")}
    before, after = run_model(model, feeds), run_model(variant.model, [variant.feed(feed) for feed in feeds])
    for name, value in before[0].items():
        if isinstance(value, np.ndarray):
            np.testing.assert_allclose(after[0][new_names.get(name, name)], value, rtol=1e-3, atol=1e-4)
