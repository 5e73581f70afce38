"""Ranges of tensors inside the bodies of If, Loop and Scan: what a body sees when it runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper, parser

from onnxq.calibration import Range, collect_max
from onnxq.calibration.extract import extract
from onnxq.calibration.probes import Merge, Reading, probing
from onnxq.calibration.runtime import open_session, run, serialize
from onnxq.errors import CalibrationError, InvalidModelError, UnsupportedError

BRANCHES = """g (float[2] x, bool c) => (float[2] y) {
    [if1] y = If (c) <
        then_branch = one () => (float[2] r) { t = Neg(x)  r = Neg(t) },
        else_branch = two () => (float[2] r) { t = Add(x, x)  r = Identity(t) }
    >
}"""

LOOP = """g (float[2] x, int64 n) => (float[2] y, float[k, 2] each) {
    go = Constant <value = bool {1}> ()
    [loop] y, each = Loop (n, go, x) <
        body = b (int64 i, bool c, float[2] s) => (bool d, float[2] next, float[2] seen) {
            d = Identity(c)  next = Add(s, x)  seen = Neg(next)
        }
    >
}"""

SCAN = """g (float[2] x, float[k, 2] rows) => (float[2] y, float[k, 2] each) {
    [scan] y, each = Scan (x, rows) <
        num_scan_inputs = 1, scan_output_axes = [0], scan_output_directions = [1],
        body = b (float[2] s, float[2] row) => (float[2] next, float[2] seen) {
            next = Add(s, row)  seen = Neg(row)
        }
    >
}"""

NESTED = """g (float[2] x, int64 n) => (float[2] y) {
    go = Constant <value = bool {1}> ()
    [loop] y = Loop (n, go, x) <
        body = b (int64 i, bool c, float[2] s) => (bool d, float[2] next) {
            d = Identity(c)
            two = Constant <value = int64 {2}> ()
            late = Less(two, i)
            [inner] next = If (late) <
                then_branch = big () => (float[2] r) { t = Mul(s, s)  r = Neg(t) },
                else_branch = small () => (float[2] r) { t = Add(s, x)  r = Identity(t) }
            >
        }
    >
}"""


def parse(body: str, *, opset: int = 17) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {body}')


def x(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_equal_names_in_branches_are_two_tensors(opset: int) -> None:
    feeds = [{"x": x(1, 2), "c": np.array(True)}, {"x": x(5, 6), "c": np.array(False)}]
    keys = ["if1.then_branch/t", "if1.else_branch/t", "if1.else_branch/x", "x"]
    assert dict(collect_max(parse(BRANCHES, opset=opset), keys, feeds)) == {
        "if1.then_branch/t": Range(-2, -1),
        "if1.else_branch/t": Range(10, 12),
        "if1.else_branch/x": Range(5, 6),
        "x": Range(1, 6),
    }


def test_a_branch_that_never_ran_saw_nothing() -> None:
    ranges = collect_max(
        parse(BRANCHES), ["if1.else_branch/t", "if1.then_branch/t"], [{"x": x(1, 2), "c": np.array(True)}]
    )
    assert dict(ranges) == {"if1.then_branch/t": Range(-2, -1)}
    assert ranges.never_finite == ("if1.else_branch/t",)


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_all_rounds_of_a_loop_count(opset: int) -> None:
    keys = ["loop.body/s", "loop.body/next", "loop.body/x", "each"]
    feeds = [{"x": x(1, -2), "n": np.array(n)} for n in (3, 0, 1)]
    assert dict(collect_max(parse(LOOP, opset=opset), keys, feeds)) == {
        "loop.body/s": Range(-6, 3),
        "loop.body/next": Range(-8, 4),
        "loop.body/x": Range(-2, 1),
        "each": Range(-4, 8),
    }


def test_a_loop_without_a_round_saw_nothing() -> None:
    ranges = collect_max(parse(LOOP), ["loop.body/s"], [{"x": x(1, -2), "n": np.array(0)}])
    assert ranges.never_finite == ("loop.body/s",)


def test_a_loop_whose_results_nobody_names_gets_some() -> None:
    model = parse(LOOP)
    del model.graph.output[1]
    del model.graph.node[1].output[1]
    assert collect_max(model, ["loop.body/seen"], [{"x": x(1, 2), "n": np.array(1)}])["loop.body/seen"] == Range(-4, -2)


def test_all_steps_of_a_scan_count() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    ranges = collect_max(
        parse(SCAN), ["scan.body/row", "scan.body/next", "scan.body/seen"], [{"x": x(1, 1), "rows": rows}]
    )
    assert dict(ranges) == {
        "scan.body/row": Range(0, 5),
        "scan.body/next": Range(1, 10),
        "scan.body/seen": Range(-5, 0),
    }


def test_bodies_in_bodies() -> None:
    keys = ["loop.body/inner.then_branch/t", "loop.body/inner.else_branch/t", "loop.body/s"]
    model, feed = parse(NESTED), {"x": x(1, 1), "n": np.array(4)}
    assert dict(collect_max(model, keys, [feed])) == {
        "loop.body/inner.then_branch/t": Range(16, 16),
        "loop.body/inner.else_branch/t": Range(2, 4),
        "loop.body/s": Range(1, 4),
    }
    fewer = collect_max(model, keys, [feed | {"n": np.array(3)}])
    assert fewer.never_finite == ("loop.body/inner.then_branch/t",)


@pytest.mark.parametrize("kind", ["float16", "double", "bfloat16"])
def test_other_float_types(kind: str) -> None:
    if kind == "bfloat16":
        model = parse("""g (float[2] x, bool c) => (float[2] y) {
            [if1] y = If (c) <
                then_branch = one () => (float[2] r) { t = Cast <to = 16> (x)  r = Cast <to = 1> (t) },
                else_branch = two () => (float[2] r) { r = Identity(x) }
            > }""")
        feed = {"x": x(1, -2), "c": np.array(True)}
        assert collect_max(model, ["if1.then_branch/t"], [feed])["if1.then_branch/t"] == Range(-2, 1)
        return
    model = parse(BRANCHES.replace("float[2]", f"{kind}[2]"))
    feed = {"x": np.array([1, -2], kind.replace("double", "float64")), "c": np.array(True)}
    assert collect_max(model, ["if1.then_branch/t"], [feed])["if1.then_branch/t"] == Range(-1, 2)


GROWING = """g (float[n] x, int64 rounds) => (float[m] y) {
    go = Constant <value = bool {1}> ()
    [loop] y = Loop (rounds, go, x) <
        body = b (int64 i, bool c, float[k] s) => (bool d, float[l] next) {
            d = Identity(c)  t = Neg(s)  next = Concat <axis = 0> (s, x)
        }
    >
}"""


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_loop_collects_vectors_of_any_length(rounds: int) -> None:
    def whole(tensor: str, kind: int, fresh: Callable[[str], str]) -> tuple[list[NodeProto], list[Reading]]:
        return [], [Reading(tensor, kind, Merge.ALL)]

    model = parse(GROWING)
    part = probing(model, ["loop.body/t", "y"], whole)
    found, y = run(open_session(serialize(part)), {"x": x(1, 2), "rounds": np.array(rounds)}, "it")
    assert found.tolist() == [-1, -2] * sum(range(1, rounds + 1))
    assert y.tolist() == [1, 2] * (rounds + 1)
    bounds = collect_max(model, ["loop.body/t"], [{"x": x(1, 2), "rounds": np.array(rounds)}])
    assert bounds.get("loop.body/t") == (Range(-2, -1) if rounds else None)


def test_nan_in_a_body_is_refused_and_the_body_named() -> None:
    model = parse(BRANCHES.replace("t = Neg(x)", "t = Sqrt(x)"))
    feeds = [{"x": x(-1, 2), "c": np.array(False)}, {"x": x(-1, 2), "c": np.array(True)}]
    with pytest.raises(CalibrationError) as caught:
        collect_max(model, ["if1.then_branch/r", "if1.then_branch/t", "if1.else_branch/t"], feeds)
    assert 'tensor "t" (output of Sqrt (unnamed, output "t"), in body "if1.then_branch")' in str(caught.value)
    assert "sample 1" in str(caught.value)
    assert collect_max(model, ["if1.then_branch/t"], feeds[:1]).never_finite == ("if1.then_branch/t",)


def test_nan_in_an_input_is_the_fault_of_the_sample() -> None:
    with pytest.raises(CalibrationError, match='holds NaN or infinity in input "x"'):
        collect_max(parse(LOOP), ["loop.body/next"], [{"x": x(np.nan, 2), "n": np.array(2)}])


def test_values_whose_sum_overflows_are_finite_in_bodies_as_well() -> None:
    feed = {"x": x(3e38, 3e38), "c": np.array(True)}
    assert collect_max(parse(BRANCHES), ["if1.then_branch/t"], [feed])["if1.then_branch/t"].high < 0


def test_a_key_of_nothing() -> None:
    with pytest.raises(ValueError, match=r'"if1\.then_branch/u"'):
        collect_max(parse(BRANCHES), ["if1.then_branch/u"], [])


def test_two_tensors_of_one_key_are_refused() -> None:
    model = parse(BRANCHES)
    model.graph.node.append(helper.make_node("Neg", ["x"], ["if1.then_branch/t"]))
    with pytest.raises(InvalidModelError, match="stands for two tensors"):
        collect_max(model, ["if1.then_branch/t"], [])
    assert collect_max(model, ["y"], [{"x": x(1, 2), "c": np.array(True)}])["y"] == Range(1, 2)


def test_bodies_of_other_operators_are_refused() -> None:
    model = parse("""g (seq(float[2]) x) => (seq(float[2]) y) {
        [map] y = SequenceMap (x) < body = b (float[2] e) => (float[2] r) { r = Neg(e) } > }""")
    with pytest.raises(UnsupportedError, match='SequenceMap "map"'):
        collect_max(model, ["map.body/r"], [])


def test_what_the_body_does_not_need_stays_behind() -> None:
    model = parse(BRANCHES)
    model.graph.node.append(helper.make_node("Unheard", ["y"], ["z"], domain="nowhere"))
    part = extract(model, ["if1.then_branch/t", "x"])
    assert [node.op_type for node in part.graph.node] == ["If"]
    assert [value.name for value in part.graph.output] == ["x"]
