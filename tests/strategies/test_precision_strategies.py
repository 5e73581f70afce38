from __future__ import annotations

import random

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis.errors import InvalidArgument

from onnxq.errors import UsageError
from onnxq.strategies import (
    WEAKNESSES,
    LabelledModel,
    Piece,
    PrecisionTopology,
    WeakenedModel,
    build_precision,
    precision_models,
    precision_topologies,
    weaken,
    weakened,
)
from onnxq.strategies.pieces import VARIANTS, WRITERS
from onnxq.strategies.topology import NEWEST_OPSET, PIECES

QUICK = settings(max_examples=100, deadline=None, database=None)
PATIENT = settings(max_examples=1000, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def run(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    # onnxruntime 1.32 removes Cast-Cast-Identity under a body that reads the result: "Missing Input".
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {"x0": np.random.default_rng(0).standard_normal((2, 16), np.float32)}
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def check_valid(model: onnx.ModelProto) -> None:
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)


@pytest.mark.parametrize("kind", PIECES)
def test_every_form_of_every_piece_is_valid_and_finite(kind: str) -> None:
    assert kind in WRITERS
    for variant in range(VARIANTS):
        for constants in ("initializer", "node", "input"):
            topology = PrecisionTopology((Piece(kind, 0, variant),), constants=constants)
            model = build_precision(topology).model
            check_valid(model)
            assert all(np.isfinite(array).all() for array in run(model).values())


@QUICK
@given(precision_models(node_names=("unique",)))
def test_draws_are_valid_labelled_and_finite(labelled: LabelledModel) -> None:
    check_valid(labelled.model)
    assert all(np.isfinite(array).all() for array in run(labelled.model).values())
    adds = [n for n in labelled.model.graph.node if n.op_type in ("Add", "Sum", "Sub")]
    assert [add.output for add in labelled.adds] == [node.output[0] for node in adds]
    assert all(add.skip is None and add.trunk is None for add in labelled.adds)


@QUICK
@given(precision_models())
def test_the_repr_makes_the_same_model(labelled: LabelledModel) -> None:
    assert eval(repr(labelled)).model == labelled.model


@pytest.mark.parametrize("opset", [17, NEWEST_OPSET])
def test_every_opset_is_valid(opset: int) -> None:
    pieces = tuple(Piece(kind) for kind in PIECES)
    check_valid(build_precision(PrecisionTopology(pieces, opset=opset)).model)


def test_a_topology_without_pieces_has_a_model() -> None:
    assert [n.op_type for n in build_precision(PrecisionTopology()).model.graph.node] == ["Identity"]


# What is drawn depends on the constants in the modules that happen to be loaded, and a search may end in a local
# minimum: so two of three searches have to get there.


def test_failures_shrink_to_one_piece() -> None:
    found = [
        find(
            precision_topologies(),
            lambda t: any(p.kind == "mask" for p in t.pieces),
            settings=PATIENT,
            random=random.Random(seed),
        )
        for seed in range(3)
    ]
    assert found.count(PrecisionTopology((Piece("mask"),))) >= 2


def test_failures_shrink_to_one_weakness() -> None:
    found = [
        find(
            weakened(precision_models()),
            lambda w: "zero_dims" in w.weaknesses,
            settings=PATIENT,
            random=random.Random(seed),
        )
        for seed in range(3)
    ]
    smallest = [w for w in found if w.weaknesses == ("zero_dims",) and len(w.model.graph.node) == 1]
    assert len(smallest) >= 2


@QUICK
@given(
    weakened(
        precision_models(node_names=("unique",)), weaknesses=["constants_as_nodes", "topk_computed", "no_value_info"]
    )
)
def test_a_weakened_model_computes_the_same(weak: WeakenedModel) -> None:
    after = run(weak.model)
    for name, value in run(weak.healthy.model).items():
        np.testing.assert_array_equal(after[name], value)


def test_weaknesses_are_applied_in_one_order() -> None:
    healthy = build_precision(PrecisionTopology((Piece("relu"),)))
    assert weaken(healthy, ["zero_dims", "rank_0_outputs"]).weaknesses == ("rank_0_outputs", "zero_dims")


@pytest.mark.parametrize(
    "arguments",
    [{"pieces": ["conv"]}, {"pieces": []}, {"node_names": "unique"}, {"constants": ["file"]}, {"max_pieces": 0}],
)
def test_illegal_arguments(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        precision_models(**arguments)


@pytest.mark.parametrize("arguments", [{"weaknesses": ["tired"]}, {"weaknesses": []}, {"max_weaknesses": 0}])
def test_illegal_weaknesses(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        weakened(precision_models(), **arguments)
    assert "tired" not in WEAKNESSES


def test_illegal_topologies() -> None:
    with pytest.raises(UsageError, match="kind"):
        Piece("conv")
    with pytest.raises(UsageError, match="opset"):
        PrecisionTopology(opset=16)
