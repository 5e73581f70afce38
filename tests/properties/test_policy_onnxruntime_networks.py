"""What must be true of every placement under policy onnxruntime, on networks that nobody thought of."""

from __future__ import annotations

from collections import Counter
from random import Random

import model_changes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onnxq.invariants import check
from onnxq.numerics import run_model
from onnxq.pipeline import make_plan, quantize
from onnxq.placement import is_linear
from onnxq.strategies import LabelledModel, residual_models
from onnxq.strategies.residual import build
from onnxq.strategies.topology import Block, Topology
from onnxruntime_graphs import optimized_ops

rngs = st.integers(0, 2**16).map(Random)

LEFT_OUT = {"insert_identities", "insert_identities_on_constants", "list_initializers_as_inputs"}
RELATIONS = sorted(model_changes.RELATIONS.keys() - LEFT_OUT)
"""An Identity between a kernel and its Relu takes the Relu out of the kernel, and it is an op with a pair itself.
Bounds of a Clip that are inputs too can be replaced by who runs the model, so no kernel takes the Clip in."""


def edges(model, old_names=None) -> model_changes.Edges:
    return model_changes.quantized_edges(make_plan(model, policy="onnxruntime").placement, old_names)


@pytest.mark.parametrize("name", RELATIONS)
@settings(max_examples=25, deadline=None)
@given(residual_models(), rngs)
def test_placement_is_kept_by(name: str, labelled: LabelledModel, rng: Random) -> None:
    variant = model_changes.RELATIONS[name](labelled.model, rng)
    assert edges(variant.model, variant.old_names) == edges(labelled.model)


@settings(max_examples=40, deadline=None)
@example(build(Topology(blocks=(Block(kind="projection", activation="relu6", variant=1),), constants="input")))
@given(residual_models(max_blocks=6, node_names=("unique",)))
def test_what_is_quantized_runs_as_an_integer_kernel(labelled: LabelledModel) -> None:
    result = quantize(labelled.model, policy="onnxruntime")
    assert not check(labelled.model, result.model, policy="onnxruntime")
    plan = make_plan(labelled.model, policy="onnxruntime")
    quantized = {edge.node for edge in plan.placement.quantized}
    linear = [n for n in range(len(plan.index.nodes)) if is_linear(plan.index, n)]
    wanted = Counter(plan.index.nodes[n].op_type for n in linear if n in quantized and _reads_integers(plan, n))
    ops = optimized_ops(result.model)
    assert ops["QLinearConv"] == wanted["Conv"], ops
    assert ops["QLinearMatMul"] + ops["MatMulIntegerToFloat"] + ops["QGemm"] == wanted["MatMul"] + wanted["Gemm"], ops


@settings(max_examples=25, deadline=None)
@given(residual_models(max_blocks=6, node_names=("unique",)), st.integers(0, 2**16), st.sampled_from(["uint8", "int8"]))
def test_the_result_is_close_to_the_float_model(labelled: LabelledModel, seed: int, integer: str) -> None:
    rng = np.random.default_rng(seed)
    feeds = [
        {
            v.name: rng.standard_normal([d.dim_value or 1 for d in v.type.tensor_type.shape.dim], dtype=np.float32)
            for v in labelled.model.graph.input
            if v.name not in {t.name for t in labelled.model.graph.initializer}
        }
    ]
    model = quantize(labelled.model, policy="onnxruntime", activation_type=integer, calibration_data=feeds).model
    for before, after in zip(run_model(labelled.model, feeds), run_model(model, feeds), strict=True):
        for name, value in before.items():
            assert np.abs(value - after[name]).max() <= 0.5 * max(np.abs(value).max(), 1e-3)


@settings(max_examples=10, deadline=None)
@given(residual_models(max_blocks=5, node_names=("unique",)))
def test_excluding_every_node_quantizes_nothing(labelled: LabelledModel) -> None:
    assert not quantize(labelled.model, policy="onnxruntime", nodes_to_exclude=[".*"]).placement.quantized


def _reads_integers(plan, node: int) -> bool:
    """Whether both operands are quantized for the op's own sake, not because a kernel before it stores integers."""
    decisions = [d for e, d in plan.placement.items() if e.node == node and e.input < 2]
    return all(d.quantize and d.reason.rule.name == "O1" for d in decisions)
