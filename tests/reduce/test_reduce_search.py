"""What holds of every reduction, whatever the model and the fault: over random residual topologies."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from random import Random

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto
from reductions import always, asking, holds, op_counts, op_types, problem

from onnxq.reduce import ReductionProblem, problem_of, reduce_model
from onnxq.reduce.search import Limits
from onnxq.strategies import LabelledModel, residual_models, weakened
from onnxq.strategies.weaknesses import WEAKNESSES
from text_models import text_model

CHAIN = "a = Relu(x) b = Neg(a) c = Abs(b) d = Exp(c) e = Tanh(d) y = Sigmoid(e)"

RUNNABLE = [name for name in WEAKNESSES if name not in ("topk_above_axis", "opaque_branch")]

few = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def some_fault(whole: ReductionProblem, rng: Random):
    """That two nodes of some types are still there."""
    return holds(*rng.sample(op_types(whole), k=min(2, len(op_types(whole)))))


@few
@given(residual_models(max_blocks=4), st.integers(0, 2**16), st.integers(1, 3))
def test_a_reduction_is_valid_runs_still_fails_and_is_no_larger(labelled: LabelledModel, seed: int, count: int) -> None:
    whole = problem(labelled.model, samples=count)
    fault = some_fault(whole, Random(seed))
    asked: list[ReductionProblem] = []
    found = reduce_model(whole, asking(fault, asked))
    result = found.problem
    assert fault(result)
    # Neutral names come last, and may be longer than what was there.
    assert replace(result.size, bytes=0) <= replace(whole.size, bytes=0)
    onnx.checker.check_model(result.model, full_check=True)
    assert len(result.feeds) == count
    assert not result.why_not_run()
    assert not result.why_not_finite()
    assert found.tried == len(asked)
    assert all(not candidate.checker_says() and not candidate.why_not_run() for candidate in asked)
    assert found.stopped == "done"


@few
@given(residual_models(max_blocks=3), st.integers(0, 2**16))
def test_the_original_stays_and_the_same_call_gives_the_same(labelled: LabelledModel, seed: int) -> None:
    whole = problem(labelled.model, samples=2)
    before, given_model = whole.digest, labelled.model.SerializeToString()
    fault = some_fault(whole, Random(seed))
    first = reduce_model(whole, fault)
    assert labelled.model.SerializeToString() == given_model
    again = problem(labelled.model, samples=2)
    assert ReductionProblem(whole.model, whole.feeds).digest == before == again.digest
    second = reduce_model(again, fault)
    assert first.problem.digest == second.problem.digest
    assert first.tried == second.tried


@few
@given(weakened(residual_models(max_blocks=2), weaknesses=RUNNABLE), st.integers(0, 2**16))
def test_models_with_worse_metadata_reduce_as_well(weak, seed: int) -> None:
    whole = problem(weak.model)
    fault = some_fault(whole, Random(seed))
    result = reduce_model(whole, fault).problem
    assert fault(result)
    assert result.size.nodes <= whole.size.nodes
    assert not result.why_not_run()


def test_nothing_is_left_to_do_for_a_result() -> None:
    first = reduce_model(problem(text_model(CHAIN)), holds("Neg", "Exp"))
    assert op_types(first.problem) == ["Neg", "Exp"]
    assert reduce_model(first.problem, holds("Neg", "Exp")).problem is first.problem


def test_a_fault_that_needs_everything_keeps_everything() -> None:
    whole = problem(text_model(CHAIN))
    assert op_types(reduce_model(whole, holds(*op_types(whole))).problem) == op_types(whole)


def test_a_branch_comes_out_of_an_if() -> None:
    text = (
        "c = Cast<to=9>(f) y = If(c) <"
        "then_branch = t () => (float[1,16,8,8] u) { q = Relu(x) u = Neg(q) },"
        "else_branch = e () => (float[1,16,8,8] v) { v = Exp(x) }>"
    )
    result = reduce_model(problem(text_model(text, inputs="float[1,16,8,8] x, float f")), holds("Neg")).problem
    assert op_counts(result) == {"Neg": 1}


def test_all_samples_are_kept_and_stay_consistent() -> None:
    whole = problem(text_model("a = Conv(x, w) b = Relu(a) d = Neg(b) y = Add(d, a)"), samples=4)
    ranges: list[list[float]] = []

    def spread(candidate: ReductionProblem) -> bool:
        """The samples of an input differ in size, which only holds if none took another one's place."""
        ranges.append([float(np.abs(value).max()) for feed in candidate.feeds for value in feed.values()])
        return holds("Neg")(candidate) and ranges[-1] == sorted(set(ranges[-1]))

    result = reduce_model(whole, spread).problem
    assert op_types(result) == ["Neg"]
    assert len(result.feeds) == 4


def test_candidates_must_be_what_the_original_is() -> None:
    good = problem(text_model("y = Relu(x)"))
    assert Limits.of(good) == Limits(is_checked=True, is_finite=True)
    stale = text_model("a = Relu(x) y = Relu(a)")
    stale.graph.value_info.append(onnx.helper.make_tensor_value_info("a", 1, [7]))
    infinite = problem(text_model("z = Sub(x, x) l = Log(z) y = Relu(l)"))
    bad = problem(stale)
    assert Limits.of(bad) == Limits(is_checked=False, is_finite=True)
    assert not Limits.of(infinite).allow(ReductionProblem(broken(), good.feeds))
    endless = problem(text_model("z = Sub(x, x) y = Div(x, z)"))
    assert not Limits.of(endless).is_finite
    assert Limits.of(endless).allow(endless)
    assert not Limits.of(good).allow(endless)
    assert not Limits.of(good).allow(bad)


def broken() -> ModelProto:
    model = text_model("y = Relu(x)")
    model.graph.node[0].input[0] = "nobody"
    return model


def test_a_stale_declaration_is_kept_if_the_fault_needs_it() -> None:
    model = text_model("a = Relu(x) b = Neg(a) y = Relu(b)")
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("b", 1, [7]))
    result = reduce_model(problem(model), lambda p: any(v.type.tensor_type.shape.dim[0].dim_value == 7
                                                         for v in p.model.graph.value_info)).problem  # fmt: skip
    assert result.size.nodes < 3
    assert len(result.model.graph.value_info) == 1


def test_nodes_out_of_order_may_stay_so() -> None:
    """The checker refuses such a model, and the runtime takes it."""
    model = text_model("a = Conv(x, w) r = Relu(a) b = Neg(r) y = Add(b, x)")
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in reversed(model.graph.node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    assert problem(model).checker_says()
    result = reduce_model(problem(model), holds("Relu", "Conv")).problem
    assert {"Relu", "Conv"} <= set(op_types(result))
    assert not result.why_not_run()


def test_an_output_that_nothing_makes_is_why_a_model_doesnt_run() -> None:
    model = text_model("y = Relu(x)")
    model.graph.output[0].name = "nobody"
    assert "nobody" in ReductionProblem(model, problem(text_model("y = Relu(x)")).feeds).why_not_run()


def test_the_time_limit_gives_the_best_so_far() -> None:
    whole = problem(text_model(" ".join(f"t{n + 1} = Relu(t{n})" for n in range(64)), "float[4] t0", "float[4] t64"))

    def slow(candidate: ReductionProblem) -> bool:
        time.sleep(0.1)
        return True

    start = time.monotonic()
    found = reduce_model(whole, slow, time_limit=0.25)
    assert found.stopped == "time"
    assert time.monotonic() - start < 5
    assert found.after < found.before
    assert not found.problem.why_not_run()


def test_no_time_at_all_gives_the_original() -> None:
    whole = problem(text_model(CHAIN))
    found = reduce_model(whole, always, time_limit=0.0)
    assert found.problem is whole
    assert (found.stopped, found.tried) == ("time", 0)


def test_ctrl_c_gives_the_best_so_far() -> None:
    asked: list[ReductionProblem] = []

    def interrupted(candidate: ReductionProblem) -> bool:
        asked.append(candidate)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return True

    found = reduce_model(problem(text_model(CHAIN)), interrupted)
    assert found.stopped == "interrupted"
    assert found.problem is asked[1]


def test_what_the_predicate_raises_isnt_caught() -> None:
    def failing(candidate: ReductionProblem) -> bool:
        raise ValueError("of the predicate")

    with pytest.raises(ValueError, match="of the predicate"):
        reduce_model(problem(text_model(CHAIN)), failing)


def test_progress_is_told() -> None:
    lines: list[str] = []
    reduce_model(problem(text_model(CHAIN)), holds("Neg"), progress=lines.append)
    assert lines[0].endswith("candidate 1")
    assert all("nodes, " in line for line in lines)


def test_samples_without_inputs_and_several_of_them() -> None:
    model = text_model("k = Constant<value_floats=[1.0, 2.0]>() y = Relu(k)", "", "float[2] y")
    result = reduce_model(problem_of(model, [{}, {}]), holds("Relu")).problem
    assert op_types(result) == ["Relu"]
    assert len(result.feeds) == 2


def test_a_reduction_is_the_same_in_any_process() -> None:
    code = (
        "from reductions import holds, problem\n"
        "from onnxq.reduce import reduce_model\n"
        "from onnxq_builders.registry import build\n"
        "found = reduce_model(problem(build('residual.convtranspose_conv')), holds('Conv', 'Add'))\n"
        "print(found.tried, found.problem.digest.hex())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folder for folder in sys.path if folder)}
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**environment, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(printed) == 1
