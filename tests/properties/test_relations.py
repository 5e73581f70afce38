"""What must be true of every placement: changes to a model that mean nothing change nothing."""

from __future__ import annotations

from random import Random

import model_changes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.invariants import check
from onnxq.pipeline import make_plan
from onnxq.relations.transforms import union
from onnxq.rewrite import strip_pairs
from onnxq.strategies import LabelledModel, residual_models
from text_models import quantize_int8

IDENTITIES = ("insert_identities", "insert_identities_on_constants")

rngs = st.integers(0, 2**16).map(Random)


@settings(max_examples=150, deadline=None)
@given(residual_models())
def test_of_each_residual_add_exactly_the_labelled_skip_is_quantized(labelled: LabelledModel) -> None:
    placement = make_plan(labelled.model).placement
    quantized = {}
    for edge in placement.quantized:
        quantized.setdefault(placement.labels[edge].output, []).append(placement.labels[edge].tensor)
    for add in labelled.adds:
        got = quantized.get(add.output, [])
        if add.tie:
            assert len(got) == 1, add
            assert set(got) <= set(add.inputs), add
        else:
            assert got == ([add.skip] if add.skip else []), add


@pytest.mark.parametrize("name", model_changes.RELATIONS)
@settings(max_examples=40, deadline=None)
@given(residual_models(), rngs)
def test_placement_is_kept_by(name: str, labelled: LabelledModel, rng: Random) -> None:
    variant = model_changes.RELATIONS[name](labelled.model, rng)
    before = model_changes.quantized_edges(make_plan(labelled.model).placement)
    after = model_changes.quantized_edges(make_plan(variant.model).placement, variant.old_names)
    assert after == before


@settings(max_examples=30, deadline=None)
@given(residual_models(), rngs)
def test_placement_is_kept_by_all_changes_together(labelled: LabelledModel, rng: Random) -> None:
    model, old_names = labelled.model, {}
    for name in ("falsify_value_info", "add_dead_nodes", *IDENTITIES, "constants_as_nodes", "reorder_nodes"):
        variant = model_changes.RELATIONS[name](model, rng)
        model, old_names = variant.model, {**old_names, **variant.old_names}
    before = model_changes.quantized_edges(make_plan(labelled.model).placement)
    assert model_changes.quantized_edges(make_plan(model).placement, old_names) == before


@settings(max_examples=40, deadline=None)
@given(residual_models(node_names=("unique",)), residual_models(), rngs)
def test_two_models_in_one_graph_get_what_each_gets_alone(
    left: LabelledModel, right: LabelledModel, rng: Random
) -> None:
    variants = union(left.model, right.model, rng)
    together = make_plan(variants[0].model).placement
    alone = [model_changes.quantized_edges(make_plan(m.model).placement) for m in (left, right)]
    sides = [
        {edge: n for edge, n in model_changes.quantized_edges(together, v.old_names).items() if edge in side}
        for v, side in zip(variants, alone, strict=True)
    ]
    assert sides == alone
    assert model_changes.quantized_edges(together).total() == sum(side.total() for side in alone)


@settings(max_examples=20, deadline=None)
@given(residual_models(max_blocks=5, node_names=("unique",)), st.integers(0, 2**16))
def test_excluding_every_node_changes_no_output_bit(labelled: LabelledModel, seed: int) -> None:
    result = quantize_int8(labelled.model, nodes_to_exclude=[".*"])
    assert not result.placement.quantized
    feeds = _feeds(labelled.model, seed)
    for a, b in zip(_run(labelled.model, feeds), _run(result.model, feeds), strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=25, deadline=None)
@given(residual_models(max_blocks=5), st.integers(0, 2**16))
def test_stripping_gives_the_float_model_back_and_quantizing_it_again_the_same(
    labelled: LabelledModel, seed: int
) -> None:
    result = quantize_int8(labelled.model)
    stripped = strip_pairs(result.model)
    again = quantize_int8(stripped)
    assert again.placement.to_text(explain=True) == result.placement.to_text(explain=True)
    feeds = _feeds(labelled.model, seed)
    floats = make_plan(labelled.model).prepared.model
    for a, b in zip(_run(floats, feeds), _run(stripped, feeds), strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=40, deadline=None)
@given(residual_models(max_blocks=6, node_names=("unique",)), st.integers(0, 2**16))
def test_own_result_keeps_every_invariant_and_runs(labelled: LabelledModel, seed: int) -> None:
    feeds = _feeds(labelled.model, seed)
    result = quantize_int8(labelled.model, calibration_data=[feeds])
    assert not check(labelled.model, result.model)
    for a, b in zip(_run(labelled.model, feeds), _run(result.model, feeds), strict=True):
        assert a.shape == b.shape
        assert np.abs(a - b).max() <= 0.5 * max(np.abs(a).max(), 1e-3)


def _feeds(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    stored = {t.name for t in model.graph.initializer}
    return {
        v.name: rng.standard_normal([d.dim_value or 1 for d in v.type.tensor_type.shape.dim], dtype=np.float32)
        for v in model.graph.input
        if v.name not in stored
    }


def _run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)
