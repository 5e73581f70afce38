from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from onnx import TensorProto, helper
from onnx.parser import parse_model
from report_examples import example_outcome, example_pair, residual_model

import onnxq
from onnxq.invariants import ModelPair
from onnxq.report import CaseOutcome, CheckOutcome, decisions_of, picture_of
from onnxq.report.picture import MOST_NODES
from onnxq.strategies import LabelledModel, residual_models


def test_boxes_and_lines_of_a_residual_block() -> None:
    picture = picture_of(example_pair())
    assert [(n.kind, n.label) for n in picture.nodes] == [
        ("input", "x"),
        ("node", "Relu"),
        ("node", "Conv"),
        ("node", "Add"),
        ("output", "y"),
    ]
    assert [n.residual for n in picture.nodes] == [False, False, False, True, False]
    lines = {(e.source, e.target): (e.tensor, e.quantized, e.role) for e in picture.edges}
    assert lines == {
        (0, 1): ("x", False, ""),
        (1, 2): ("skip", False, ""),
        (2, 3): ("trunk", False, "trunk"),
        (1, 3): ("skip", True, "skip"),
        (3, 4): ("y", False, ""),
    }


def test_a_constant_is_written_into_the_node_that_reads_it() -> None:
    model = residual_model()
    result = onnxq.quantize(model, calibration_shapes={"x": [1, 16, 8, 8]}).model
    conv = picture_of(ModelPair(model, result)).nodes[2]
    assert [(c.name, c.shape, c.quantization) for c in conv.constants] == [
        ("weight", "[16, 16, 1, 1]", "int8 per axis 0")
    ]


def test_a_node_that_is_gone_is_marked() -> None:
    pair = example_pair()
    relu = next(node for node in pair.quantized.graph.node if node.op_type == "Relu")
    relu.op_type = "Abs"
    assert [n.label for n in picture_of(pair).nodes if n.gone] == ["Relu"]
    assert [d.found for d in decisions_of(pair) if d.edge.startswith("Relu")] == ["gone"]


def test_a_body_is_one_box_with_lines_for_what_it_captures() -> None:
    model = parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x, bool c) => (float[2] y)
        {
            r = Relu (x)
            y = If (c) <then_branch = t () => (float[2] a) { a = Abs (r) },
                        else_branch = e () => (float[2] b) { b = Neg (r) }>
        }
        """
    )
    picture = picture_of(ModelPair(model, model))
    branch = next(number for number, node in enumerate(picture.nodes) if node.label == "If")
    assert sorted(e.tensor for e in picture.edges if e.target == branch) == ["c", "r"]
    assert [e.is_float for e in picture.edges if e.tensor == "c"] == [False]


def test_a_graph_that_is_too_big_is_not_drawn() -> None:
    count = MOST_NODES
    nodes = [helper.make_node("Relu", [f"t{n}"], [f"t{n + 1}"]) for n in range(count)]
    ends = [helper.make_tensor_value_info(f"t{n}", TensorProto.FLOAT, [2]) for n in (0, count)]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]))
    picture = picture_of(ModelPair(model, model))
    assert picture.nodes == ()
    assert f"{count + 2} nodes" in picture.not_drawn


@given(residual_models())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_model_is_pictured_as_it_was_quantized(labelled: LabelledModel) -> None:
    pair = ModelPair(labelled.model, onnxq.quantize(labelled.model).model)
    picture = picture_of(pair)
    assert all(e.source < e.target < len(picture.nodes) for e in picture.edges)
    assert all(d.decision == d.found for d in decisions_of(pair))
    assert sum(n.residual for n in picture.nodes) == sum(add.skip is not None or add.tie for add in labelled.adds)


@pytest.mark.parametrize("fails", [False, True])
def test_an_outcome_survives_json(fails: bool) -> None:
    outcome = example_outcome(fails=fails, skip="skip\u202e\x01")
    assert CaseOutcome.from_json(outcome.to_json()) == outcome
    assert outcome.to_json().isascii()


def test_the_outcome_of_a_case_is_its_worst_check() -> None:
    checks = [CheckOutcome(o, o) for o in ("passed", "skipped", "known", "failed", "error")]  # type: ignore[arg-type]
    assert [CaseOutcome("c", "t", checks=tuple(checks[:n])).outcome for n in range(6)] == [
        "skipped",
        "passed",
        "skipped",
        "known",
        "failed",
        "error",
    ]
