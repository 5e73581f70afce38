from __future__ import annotations

import multiprocessing
import random
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis.errors import InvalidArgument

from onnxq.errors import UsageError
from onnxq.strategies import Block, LabelledModel, Topology, build, residual_models, residual_topologies
from onnxq.strategies.blocks import BLOCK_KINDS
from onnxq.strategies.topology import ACTIVATIONS, CONSTANTS, KINDS, NEWEST_OPSET, NODE_NAMES, OLDEST_OPSET

ADDS = {"Add", "Sum", "Sub"}
QUICK = settings(max_examples=100, deadline=None, database=None)


def run(model: onnx.ModelProto) -> list[np.ndarray]:
    """Outputs in onnxruntime, which loads no model whose nodes share a name."""
    runnable = onnx.ModelProto()
    runnable.CopyFrom(model)
    for number, node in enumerate(runnable.graph.node):
        node.name = str(number)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(runnable.SerializeToString(), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    overridable = {t.name for t in model.graph.initializer}
    feeds = {
        i.name: rng.standard_normal(i.shape, np.float32) for i in session.get_inputs() if i.name not in overridable
    }
    return session.run(None, feeds)


def has_chain(model: onnx.ModelProto, *op_types: str) -> bool:
    """Whether nodes of these types feed each other in this order."""
    reached = {t.name for t in model.graph.input} | {t for n in model.graph.node for t in n.output}
    for op_type in op_types:
        nodes = [n for n in model.graph.node if n.op_type == op_type and reached.intersection(n.input)]
        reached = {t for n in nodes for t in n.output}
    return bool(reached)


def size(model: onnx.ModelProto) -> int:
    return sum(node.op_type != "Constant" for node in model.graph.node)


def test_a_thousand_draws_are_valid_and_run() -> None:
    drawn = 0

    @settings(max_examples=1000, deadline=None, database=None, phases=[Phase.generate])
    @given(residual_models())
    def check(labelled: LabelledModel) -> None:
        nonlocal drawn
        drawn += 1
        onnx.checker.check_model(labelled.model, full_check=True)
        inferred = onnx.shape_inference.infer_shapes(labelled.model, check_type=True, strict_mode=True, data_prop=True)
        known = {v.name for v in (*inferred.graph.value_info, *inferred.graph.output)}
        adds = [n for n in labelled.model.graph.node if n.op_type in ADDS]
        assert [(n.name, n.output[0], tuple(n.input)) for n in adds] == [
            (a.node, a.output, a.inputs) for a in labelled.adds
        ]
        assert all(a.output in known for a in labelled.adds)
        if drawn % 10 == 0:
            assert all(np.isfinite(array).all() for array in run(labelled.model))

    check()
    assert drawn >= 1000


@QUICK
@given(residual_models())
def test_labels_agree_with_themselves(labelled: LabelledModel) -> None:
    for add in labelled.adds:
        assert (add.skip is None) == (add.trunk is None) == (add.rule in ("R1", "R4") or add.tie)
        if add.skip is not None:
            assert {add.skip, add.trunk} == set(add.inputs)
            assert not add.tie


@QUICK
@given(residual_topologies())
def test_a_topology_is_a_reproducer(topology: Topology) -> None:
    again = eval(repr(topology), {"Topology": Topology, "Block": Block})
    assert again == topology
    first, second = build(topology), build(again)
    assert first.model.SerializeToString(deterministic=True) == second.model.SerializeToString(deterministic=True)
    assert first.adds == second.adds


@QUICK
@given(residual_topologies(node_names=["unique"], constants=["initializer"]))
def test_swapping_operands_changes_no_label(topology: Topology) -> None:
    def truth(swap: bool) -> list[tuple[str | None, str | None, str, bool]]:
        blocks = tuple(Block(b.kind, b.source, b.other, b.activation, b.norm, swap, b.variant) for b in topology.blocks)
        swapped = build(Topology(blocks, topology.inputs, topology.channels, topology.opset, seed=topology.seed))
        return [(a.skip, a.trunk, a.rule, a.tie) for a in swapped.adds]

    # Operands of a Sum of three and of a Concat are made in another order, but no tensor is named after its operands.
    assert truth(False) == truth(True)


@QUICK
@given(residual_topologies())
def test_names_and_storage_of_constants_change_no_label(topology: Topology) -> None:
    def truth(node_names: str, constants: str) -> list[tuple[str, int | None, bool]]:
        other = Topology(
            topology.blocks, topology.inputs, topology.channels, topology.opset, node_names, constants, topology.seed
        )
        labelled = build(other)
        return [(a.rule, None if a.skip is None else a.inputs.index(a.skip), a.tie) for a in labelled.adds]

    expected = truth("unique", "initializer")
    assert all(truth(names, constants) == expected for names in NODE_NAMES for constants in CONSTANTS)


@pytest.mark.parametrize("opset", [OLDEST_OPSET, 14, 17, NEWEST_OPSET])
def test_every_form_of_every_kind_builds_in_every_opset(opset: int) -> None:
    for kind, facts in BLOCK_KINDS.items():
        blocks = [
            Block(kind, 0, 1, ACTIVATIONS[(variant + norm * 5) % len(ACTIVATIONS)], bool(norm), bool(norm), variant)
            for variant in range(facts.variants)
            for norm in range(2)
        ]
        model = build(Topology(tuple(blocks), inputs=2, opset=opset)).model
        onnx.checker.check_model(model, full_check=True)
        assert all(np.isfinite(array).all() for array in run(model))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("opset", [OLDEST_OPSET, NEWEST_OPSET])
def test_every_activation_runs(activation: str, opset: int) -> None:
    run(build(Topology((Block("conv", activation=activation),), opset=opset)).model)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn(kind: str) -> None:
    find(
        residual_topologies(),
        lambda topology: any(b.kind == kind for b in topology.blocks),
        settings=settings(max_examples=1000, database=None, deadline=None, phases=[Phase.generate]),
        random=random.Random(0),
    )


@pytest.mark.parametrize("rule", ["R1", "R4", "R5", "R6", "R7"])
def test_every_rule_is_drawn(rule: str) -> None:
    find(
        residual_models(),
        lambda labelled: any(a.rule == rule for a in labelled.adds),
        settings=settings(max_examples=1000, database=None, deadline=None, phases=[Phase.generate]),
        random=random.Random(0),
    )


@pytest.mark.parametrize("op_types", [("Add", "Relu", "Conv"), ("Conv", "BatchNormalization", "Add")])
def test_a_fault_of_three_nodes_shrinks_to_at_most_five(op_types: tuple[str, str, str]) -> None:
    # What is drawn also depends on the constants in the modules that happen to be loaded, so the searches run in a
    # process of their own, as a user's would, and not in one that has loaded all other tests. One in five or so ends
    # in a local minimum even there: the middle one of three counts.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        sizes = list(pool.map(smallest_with_chain, [op_types] * 3, range(3)))
    assert sorted(sizes)[1] <= 5


def smallest_with_chain(op_types: tuple[str, str, str], seed: int) -> int:
    smallest = find(
        residual_models(),
        lambda labelled: has_chain(labelled.model, *op_types),
        settings=settings(
            max_examples=2000, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
        random=random.Random(seed),
    )
    return size(smallest.model)


def test_the_smallest_draw_is_one_node() -> None:
    smallest = find(residual_models(), lambda _: True, settings=QUICK, random=random.Random(0))
    assert smallest.topology == Topology()
    assert [n.op_type for n in smallest.model.graph.node] == ["Identity"]


@pytest.mark.parametrize(
    "options",
    [
        {"max_blocks": 0},
        {"max_inputs": 0},
        {"kinds": []},
        {"kinds": ["convolution"]},
        {"kinds": "conv"},
        {"activations": ["tanh"]},
        {"node_names": ["none"]},
        {"constants": ["file"]},
        {"channels": 8},
        {"opset": 12},
        {"opset": 99},
    ],
)
def test_bad_arguments_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        residual_topologies(**options)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        residual_models(**options)  # type: ignore[arg-type]


@QUICK
@given(
    residual_topologies(
        max_blocks=3,
        kinds=["identity", "conv"],
        activations=["relu"],
        node_names=["unnamed"],
        constants=["node"],
        max_inputs=1,
        channels=32,
        opset=17,
    )
)
def test_options_restrict_what_is_drawn(topology: Topology) -> None:
    assert len(topology.blocks) <= 3
    assert {(b.kind, b.activation) for b in topology.blocks} <= {("identity", "relu"), ("conv", "relu")}
    model = build(topology).model
    assert not any(n.name for n in model.graph.node)
    assert not model.graph.initializer
    assert model.opset_import[0].version == 17
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [1, 32, 8, 8]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Block("convolution"),
        lambda: Block("conv", activation="tanh"),
        lambda: Block("conv", source=-1),
        lambda: Topology(node_names="none"),
        lambda: Topology(channels=20),
        lambda: Topology(opset=5),
        lambda: Topology(inputs=0),
    ],
)
def test_a_decision_out_of_range_is_refused(make: object) -> None:
    with pytest.raises(UsageError, match="must be"):
        make()  # type: ignore[operator]


def test_indices_beyond_the_oldest_tensor_mean_the_oldest() -> None:
    far = build(Topology((Block("add", source=99, other=1000, variant=99),)))
    assert far.adds[0].inputs == ("x0", "x0")


def test_the_table_of_kinds_is_complete() -> None:
    assert set(BLOCK_KINDS) == set(KINDS)
    # The number above the flags of a block's form is either the other source or the variant.
    assert all(facts.variants == 1 for facts in BLOCK_KINDS.values() if facts.joins)


def test_two_hundred_models_take_less_than_four_seconds() -> None:
    """The goal is 150 models a second on an idle core; here a third of it, since test machines are busy."""

    @settings(max_examples=200, deadline=None, database=None, phases=[Phase.generate])
    @given(residual_models())
    def draw(labelled: LabelledModel) -> None:
        assert labelled.model.graph.node

    start = time.process_time()
    draw()
    assert time.process_time() - start < 4


def test_importing_the_package_loads_no_strategies() -> None:
    code = "import sys, onnxq; sys.exit('onnxq.strategies' in sys.modules or 'hypothesis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
