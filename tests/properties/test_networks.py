"""The same relations on whole networks, and on a model with bodies."""

from __future__ import annotations

from random import Random

import model_changes
import pytest

from onnxq.pipeline import make_plan
from onnxq.rewrite import strip_pairs
from onnxq_builders.registry import BUILDERS, build
from text_models import quantize_int8, text_model

NETWORKS = [name for name in BUILDERS if not name.startswith(("residual.", "weak."))]
TOGETHER = (
    "swap_operands",
    "add_dead_nodes",
    "insert_identities",
    "insert_identities_on_constants",
    "constants_as_nodes",
    "reorder_nodes",
    "rename_all",
)


@pytest.mark.parametrize("name", BUILDERS)
def test_all_changes_together_keep_the_placement(name: str) -> None:
    model, old_names = build(name), {}
    before = model_changes.quantized_edges(make_plan(model).placement)
    rng = Random(name)
    for relation in TOGETHER:
        variant = model_changes.RELATIONS[relation](model, rng)
        model = variant.model
        old_names = {**old_names, **{new: old_names.get(old, old) for new, old in variant.old_names.items()}}
    assert model_changes.quantized_edges(make_plan(model).placement, old_names) == before
    assert before


@pytest.mark.parametrize("name", NETWORKS)
def test_a_higher_opset_keeps_the_placement(name: str) -> None:
    model = build(name)
    before = model_changes.quantized_edges(make_plan(model).placement)
    variant = model_changes.RELATIONS["raise_opset"](model, Random(0))
    after = make_plan(variant.model).placement
    read = {output for output, _, _ in before}
    assert {e for e in model_changes.quantized_edges(after) if e[0] in read} == set(before)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_residual_add_of_a_network_reads_exactly_one_quantized_input(name: str) -> None:
    placement = make_plan(build(name)).placement
    for residual in placement.residuals:
        assert len(placement.quantized_inputs(residual.node)) == int(residual.is_residual)


@pytest.mark.parametrize("name", NETWORKS)
def test_quantizing_a_network_again_after_stripping_gives_the_same(name: str) -> None:
    first = quantize_int8(build(name))
    again = quantize_int8(strip_pairs(first.model))
    assert again.placement.to_text(explain=True) == first.placement.to_text(explain=True)
    assert [n.SerializeToString() for n in again.model.graph.node] == [
        n.SerializeToString() for n in first.model.graph.node
    ]


@pytest.mark.parametrize("name", ["rename_all", "reorder_nodes", "insert_identities", "unname_nodes", "add_dead_nodes"])
@pytest.mark.parametrize("seed", range(5))
def test_a_model_with_bodies(name: str, seed: int) -> None:
    body = """s = Relu(x) a = Conv(s, w1) b = Conv(s, k1) z = Conv(x, k2)
        i = If(c) <then_branch = t () => (float[1,16,8,8] p) { p1 = Neg(b) p = Add(p1, a) },
                   else_branch = e () => (float[1,16,8,8] q) { q = Mul(z, z) }>
        m = Conv(i, w2) n = Add(m, s) o = Add(a, b) y = Add(n, o)"""
    model = text_model(body, "float[1,16,8,8] x, bool c")
    before = model_changes.quantized_edges(make_plan(model).placement)
    variant = model_changes.RELATIONS[name](model, Random(seed))
    assert model_changes.quantized_edges(make_plan(variant.model).placement, variant.old_names) == before
    assert before["n", "s", None] == 1
    assert before["o", "b", None] == 1
