"""A model that is put whole into a body is placed there as it is alone, and computes the same when quantized."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from enclosing import ENCLOSINGS, OUTER, enclosed_feeds
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.invariants import check
from onnxq.pipeline import make_plan, quantize
from onnxq.placement import Placement
from onnxq.rewrite import strip_pairs
from onnxq.strategies import LabelledModel, residual_models
from onnxq_builders.registry import BUILDERS, build
from text_models import quantize_int8

NETWORKS = [name for name in BUILDERS if not name.startswith(("residual.", "weak."))]


def decisions(placement: Placement, path: str = "") -> Counter[tuple[object, ...]]:
    """What is decided in one graph, without the names that preparation may have made up."""
    labels = placement.labels
    return Counter(
        (labels[e].op_type, labels[e].output, e.input, labels[e].tensor, d.quantize, d.axis, d.reason.rule)
        for e, d in placement.items()
        if labels[e].graph == path and OUTER not in labels[e].output
    )


def groups(placement: Placement, path: str = "") -> set[tuple[str, ...]]:
    prefix = f"{path}/" if path else ""
    return {tuple(key.removeprefix(prefix) for key in group) for group in placement.scale_groups}


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def random_feeds(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    stored = {t.name for t in model.graph.initializer}
    return {
        v.name: rng.standard_normal([d.dim_value or 1 for d in v.type.tensor_type.shape.dim], dtype=np.float32)
        for v in model.graph.input
        if v.name not in stored
    }


@pytest.mark.parametrize("name", ENCLOSINGS)
@settings(max_examples=20, deadline=None)
@given(residual_models(max_blocks=6))
def test_a_body_is_placed_like_a_graph_of_its_own(name: str, labelled: LabelledModel) -> None:
    enclose, path, _ = ENCLOSINGS[name]
    alone, inside = make_plan(labelled.model).placement, make_plan(enclose(labelled.model)).placement
    assert decisions(inside, path) == decisions(alone)
    assert groups(inside, path) == groups(alone)
    assert {inside.labels[e].graph for e in inside.quantized} <= {path}


@pytest.mark.parametrize("name", ENCLOSINGS)
@settings(max_examples=8, deadline=None)
@given(residual_models(max_blocks=5), st.integers(0, 2**16))
def test_a_body_computes_what_the_quantized_model_computes(name: str, labelled: LabelledModel, seed: int) -> None:
    enclose, _, adds_axis = ENCLOSINGS[name]
    model, enclosed = labelled.model, enclose(labelled.model)
    feeds = random_feeds(model, seed)
    outer_feeds = enclosed_feeds(enclosed, feeds)
    alone = quantize_int8(model, calibration_data=[feeds])
    inside = quantize_int8(enclosed, calibration_data=[outer_feeds])
    assert not any("never ran" in warning for warning in inside.warnings)
    assert not check(enclosed, inside.model)
    for a, b in zip(run(alone.model, feeds), run(inside.model, outer_feeds), strict=True):
        np.testing.assert_array_equal(a, b[0] if adds_axis else b)


@pytest.mark.parametrize("name", ENCLOSINGS)
@pytest.mark.parametrize("network", NETWORKS)
def test_networks_are_placed_in_bodies_like_alone(name: str, network: str) -> None:
    enclose, path, _ = ENCLOSINGS[name]
    model = build(network)
    assert decisions(make_plan(enclose(model)).placement, path) == decisions(make_plan(model).placement)


@pytest.mark.parametrize("name", ENCLOSINGS)
@settings(max_examples=8, deadline=None)
@given(residual_models(max_blocks=4))
def test_stripping_gives_the_float_model_back(name: str, labelled: LabelledModel) -> None:
    model = ENCLOSINGS[name][0](labelled.model)
    result = quantize_int8(model)
    stripped = strip_pairs(result.model)
    assert stripped.graph.SerializeToString() == make_plan(model).prepared.model.graph.SerializeToString()


@pytest.mark.parametrize("name", ENCLOSINGS)
@settings(max_examples=8, deadline=None)
@given(residual_models(max_blocks=4, node_names=("unique",)), st.integers(0, 2**16))
def test_half_precision_in_bodies_is_valid_and_runs(name: str, labelled: LabelledModel, seed: int) -> None:
    enclose, _, adds_axis = ENCLOSINGS[name]
    enclosed = enclose(labelled.model)
    feeds = random_feeds(labelled.model, seed)
    outer_feeds = enclosed_feeds(enclosed, feeds)
    result = quantize(enclosed, calibration_data=[outer_feeds], high_precision_dtype="fp16")
    assert not check(enclosed, result.model)
    for a, b in zip(run(labelled.model, feeds), run(result.model, outer_feeds), strict=True):
        got = b[0] if adds_axis else b
        assert a.shape == got.shape
        assert np.abs(a - got).max() <= 0.5 * max(np.abs(a).max(), 1e-3)
