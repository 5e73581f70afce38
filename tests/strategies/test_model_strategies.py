"""Models of any operators: every topology is a valid model that runs, and everything that is promised is drawn."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, find, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from onnx import ModelProto, TensorProto

import onnxq
from onnxq.calibration import make_feeds
from onnxq.numerics import run_model
from onnxq.pipeline import quantize
from onnxq.protos import walk_graphs, walk_nodes
from onnxq.strategies import (
    LabelledModel,
    ModelTopology,
    Step,
    build_model,
    calibration_feeds,
    model_topologies,
    models,
)
from onnxq.strategies.model_topology import DTYPES, MODEL_NAMES, OLDEST_MODEL_OPSET, SHAPES
from onnxq.strategies.models import STEPS
from onnxq.strategies.topology import NEWEST_OPSET

ALL = tuple(DTYPES)


def quick(examples: int) -> settings:
    """So many in an ordinary run, and more where the profile asks for more than hypothesis's own 100."""
    most = examples * max(settings().max_examples, 100) // 100
    return settings(max_examples=most, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check_valid(model: ModelProto) -> None:
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)


def check_runs(model: ModelProto) -> None:
    for outputs in run_model(model, list(make_feeds(model, None))):
        for value in model.graph.output:
            array, dims = outputs[value.name], value.type.tensor_type.shape.dim
            assert [d.dim_value or n for d, n in zip(dims, array.shape, strict=True)] == list(array.shape)
            if array.dtype.kind == "f":
                assert np.isfinite(array.astype(np.float64)).all()


@quick(80)
@given(models(dtypes=ALL))
def test_draws_are_valid_run_and_are_finite(labelled: LabelledModel) -> None:
    check_valid(labelled.model)
    check_runs(labelled.model)
    assert labelled.adds == ()


@pytest.mark.parametrize("kind", STEPS)
def test_every_kind_fits_every_shape(kind: str) -> None:
    for shape in range(len(SHAPES)):
        for form in range(0, 128, 7):
            topology = ModelTopology(
                (Step(kind, form=form),), inputs=(shape,), side=bool(form & 1), opset=11 + form % 14
            )
            model = build_model(topology).model
            check_valid(model)
            check_runs(model)
            assert sum(1 for _ in walk_nodes(model.graph.node)) <= STEPS[kind].nodes


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("before", ["slice", "indices", "reshape", "matmul"])
def test_every_kind_fits_what_others_yield(kind: str, before: str) -> None:
    for form in range(0, 128, 17):
        steps = (Step(before, form=form % 5), Step(before, form=form % 3), Step(kind, form=form, other=1))
        model = build_model(ModelTopology(steps, max_nodes=60)).model
        check_valid(model)
        check_runs(model)


@quick(60)
@given(models(dtypes=ALL))
def test_onnxq_quantizes_every_draw(labelled: LabelledModel) -> None:
    result = quantize(labelled.model, calibration_method="max")
    violations = onnxq.check(labelled.model, result.model)
    assert not violations, "\n".join(map(str, violations))


@quick(50)
@given(models(dtypes=ALL))
def test_the_repr_makes_the_same_model(labelled: LabelledModel) -> None:
    assert eval(repr(labelled)).model.SerializeToString() == labelled.model.SerializeToString()


@quick(40)
@given(models(max_nodes=9))
def test_nodes_are_bounded(labelled: LabelledModel) -> None:
    assert 1 <= sum(1 for _ in walk_nodes(labelled.model.graph.node)) <= 9


@quick(40)
@given(models(ops=["conv", "activation"], opset=13))
def test_ops_and_opset_are_kept_to(labelled: LabelledModel) -> None:
    assert {step.kind for step in labelled.topology.steps} <= {"conv", "activation"}
    assert labelled.model.opset_import[0].version == 13


@pytest.mark.parametrize(
    "wrong", [{"ops": []}, {"ops": ["convolution"]}, {"dtypes": "float32"}, {"max_nodes": 0}, {"opset": 10}]
)
def test_wrong_arguments_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        models(**wrong)  # type: ignore[arg-type]


def has_op(*op_types: str) -> Callable[[ModelProto], bool]:
    return lambda model: any(node.op_type in op_types for node in walk_nodes(model.graph.node))


def shares_a_weight(model: ModelProto) -> bool:
    reads = Counter(name for node in walk_nodes(model.graph.node) for name in node.input)
    return any(reads[t.name] > 1 and len(t.dims) > 1 for t in model.graph.initializer)


def captures(model: ModelProto) -> bool:
    made = {name for node in model.graph.node for name in node.output}
    bodies = list(walk_graphs(model.graph))[1:]
    return any(name in made for body in bodies for node in body.node for name in node.input)


PROMISED: dict[str, Callable[[ModelProto], bool]] = {
    "conv of one dim": lambda m: any(
        n.op_type == "Conv" and len(a.ints) == 1 for n in m.graph.node for a in n.attribute
    ),
    "conv of three dims": lambda m: any(
        n.op_type == "Conv" and a.name == "strides" and len(a.ints) == 3 for n in m.graph.node for a in n.attribute
    ),
    "auto_pad": lambda m: any(a.name == "auto_pad" for n in m.graph.node for a in n.attribute),
    "transposed gemm": lambda m: any(a.name == "transA" and a.i for n in m.graph.node for a in n.attribute),
    "attention": has_op("Softmax"),
    "If": has_op("If"),
    "Loop": has_op("Loop"),
    "captured tensor": captures,
    "TopK": has_op("TopK"),
    "Resize": has_op("Resize"),
    "LayerNormalization": has_op("LayerNormalization"),
    "shared weight": shares_a_weight,
    "Constant node": has_op("Constant"),
    "several inputs": lambda m: len(m.graph.input) > 1,
    "several outputs": lambda m: len(m.graph.output) > 1,
    "side input of integers": lambda m: any(v.type.tensor_type.elem_type == TensorProto.INT64 for v in m.graph.input),
    "symbolic dim": lambda m: any(d.dim_param for v in m.graph.input for d in v.type.tensor_type.shape.dim),
    "empty tensor": lambda m: any(
        d.dim_value == 0 and d.HasField("dim_value")
        for v in onnx.shape_inference.infer_shapes(m).graph.value_info
        for d in v.type.tensor_type.shape.dim
    ),
    "scalar": lambda m: any(
        not v.type.tensor_type.shape.dim and v.type.tensor_type.HasField("shape")
        for v in onnx.shape_inference.infer_shapes(m).graph.value_info
    ),
    "unnamed nodes": lambda m: not any(node.name for node in m.graph.node),
    "colliding names": lambda m: any("QuantizeLinear_Output" in name for n in m.graph.node for name in n.output),
    "oldest opset": lambda m: m.opset_import[0].version == OLDEST_MODEL_OPSET,
    "newest opset": lambda m: m.opset_import[0].version == NEWEST_OPSET,
    "half precision": lambda m: m.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT16,
    "bfloat16 weights": lambda m: any(t.data_type == TensorProto.BFLOAT16 for t in m.graph.initializer),
}


def test_everything_that_is_promised_is_drawn() -> None:
    missing = set(PROMISED)

    @seed(0)
    @settings(max_examples=2000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(models(dtypes=ALL))
    def look(labelled: LabelledModel) -> None:
        missing.difference_update([name for name in missing if PROMISED[name](labelled.model)])

    look()
    assert not missing


def test_shrinking_leaves_what_matters() -> None:
    patient = settings(max_examples=2000, database=None)
    found = find(models(), lambda drawn: has_op("Loop")(drawn.model), settings=patient)
    assert found.topology.steps == (Step("loop"),)
    topology = found.topology
    assert (topology.inputs, topology.side, topology.symbolic, topology.outputs) == ((0,), False, False, 0)


def test_the_registered_strategy_draws_both_kinds() -> None:
    kinds = {"ModelTopology", "Topology"}
    for kind in kinds:
        wanted = settings(max_examples=500, database=None)
        assert find(
            st.from_type(onnxq.LabelledModel), lambda m, k=kind: type(m.topology).__name__ == k, settings=wanted
        )


@quick(20)
@given(st.data())
def test_feeds_fit_their_model(data: st.DataObject) -> None:
    labelled = data.draw(models(max_nodes=10))
    feeds = data.draw(calibration_feeds(labelled.model, max_samples=2))
    assert 1 <= len(feeds) <= 2
    assert run_model(labelled.model, feeds)
    assert all(math.prod(np.shape(value)) for feed in feeds for value in feed.values())


def test_a_topology_is_the_same_model_wherever_it_is_built() -> None:
    topology = ModelTopology(
        tuple(Step(kind, form=3) for kind in STEPS), side=True, max_nodes=300, names=MODEL_NAMES[2]
    )
    first, again = (build_model(topology).model.SerializeToString(deterministic=True) for _ in range(2))
    assert first == again


@quick(30)
@given(model_topologies())
def test_topologies_are_plain_data(topology: ModelTopology) -> None:
    assert eval(repr(topology)) == topology
    hash(topology)
