"""Every relation holds of onnxq, and each finds the quantizer that breaks it."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import faulty_quantizers as faulty
from onnxq.errors import UnsupportedError, UsageError
from onnxq.policies import POLICIES
from onnxq.quantizers import OnnxqQuantizer, resolve
from onnxq.quantizers.callables import CallableQuantizer
from onnxq.relations import RELATIONS, Relation, Trial, find_relation, trial_of
from onnxq.strategies import (
    Block,
    LabelledModel,
    Piece,
    PrecisionTopology,
    Topology,
    WeakenedModel,
    build,
    build_precision,
    precision_models,
    residual_models,
    weaken,
    weakened,
)
from text_models import text_model

NAMES = [relation.name for relation in RELATIONS]
IN_PROCESS = [name for name in NAMES if name != "hash-seed"]

drawn_models = st.one_of(
    residual_models(max_blocks=6),
    precision_models(),
    weakened(st.one_of(residual_models(max_blocks=4), precision_models(max_pieces=4))),
)


def examples(few: int) -> settings:
    """Few in an ordinary run, and as many times more as the profile asks for more than hypothesis's own 100."""
    most = few * max(settings().max_examples, 100) // 100
    return settings(max_examples=most, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", IN_PROCESS)
@examples(4)
@given(drawn_models, st.integers(0, 2**16))
def test_onnxq_keeps(name: str, policy: str, drawn: LabelledModel | WeakenedModel, seed: int) -> None:
    violations = find_relation(name).check(trial_of(OnnxqQuantizer(policy), drawn, seed=seed))
    assert not violations, "\n".join(map(str, violations))


@pytest.mark.parametrize("policy", POLICIES)
@examples(20)
@given(drawn=drawn_models, seed=st.integers(0, 2**16))
def test_the_oracles_hold_of_one_result(policy: str, drawn: LabelledModel | WeakenedModel, seed: int) -> None:
    trial = trial_of(OnnxqQuantizer(policy), drawn, seed=seed)
    names = ("no-crash", "invariants", "ground-truth", "runs", "close-to-float", "optimizations", "input-unchanged")
    violations = [violation for name in names for violation in find_relation(name).check(trial)]
    assert not violations, "\n".join(map(str, violations))


@pytest.mark.parametrize("policy", POLICIES)
@examples(1)
@given(drawn=residual_models(max_blocks=4), seed=st.integers(0, 2**16))
def test_onnxq_keeps_its_decisions_under_another_hash_seed(policy: str, drawn: LabelledModel, seed: int) -> None:
    trial = trial_of(OnnxqQuantizer(policy), drawn, seed=seed, spec=f"onnxq:{policy}")
    assert not find_relation("hash-seed").check(trial)


def trial(function, drawn: LabelledModel | WeakenedModel, **arguments) -> Trial:
    return trial_of(faulty.quantizer(function), drawn, **arguments)


def residual(*kinds: str, **frame) -> LabelledModel:
    return build(Topology(tuple(Block(kind, activation="relu", norm=True) for kind in kinds), **frame))


PLAIN = residual("conv", "identity", "conv", "mlp", "projection", "fuse")
UNNAMED = residual("identity", "conv", node_names="unnamed")
NODES = residual("conv", "identity", constants="node")
DECLARED = residual("identity", "conv")
DECLARED = LabelledModel(onnx.shape_inference.infer_shapes(DECLARED.model), DECLARED.adds, DECLARED.topology)

FAULTS = {
    "no-crash": (faulty.crashing, PLAIN),
    "invariants": (faulty.choosing(faulty.both_inputs_of_adds), PLAIN),
    "ground-truth": (faulty.choosing(faulty.both_inputs_of_adds), PLAIN),
    "runs": (faulty.not_running, PLAIN),
    "close-to-float": (faulty.too_coarse, PLAIN),
    "optimizations": (faulty.coarse_then_fine, residual("conv")),
    "deterministic": (faulty.counting(), PLAIN),
    "input-unchanged": (faulty.writing_in_place, PLAIN),
    "exclude-all": (faulty.deaf, PLAIN),
    "swapped-operands": (faulty.choosing(faulty.input_0_of_adds), PLAIN),
    "renamed": (faulty.choosing(faulty.by_tensor_name), PLAIN),
    "unnamed-nodes": (faulty.choosing(faulty.named_nodes), PLAIN),
    "equal-node-names": (faulty.choosing(faulty.last_of_each_name), PLAIN),
    "reordered": (faulty.choosing(faulty.first_conv_in_order), residual("fuse", "fuse", "fuse", inputs=2)),
    "identities": (faulty.choosing(faulty.what_no_identity_yields), PLAIN),
    "identities-on-constants": (faulty.choosing(faulty.stored_weights), PLAIN),
    "dead-nodes": (faulty.choosing(faulty.read_once), PLAIN),
    "constants-as-nodes": (faulty.choosing(faulty.stored_weights), PLAIN),
    "constants-as-initializers": (faulty.choosing(faulty.stored_weights), NODES),
    "initializers-as-inputs": (faulty.choosing(faulty.weights_without_input), PLAIN),
    "raised-opset": (faulty.choosing(faulty.below_opset_21), PLAIN),
    "declared-types": (faulty.choosing(faulty.undeclared), PLAIN),
    "no-value-info": (faulty.choosing(faulty.undeclared), DECLARED),
    "stale-value-info": (faulty.choosing(faulty.declared_rank_4), PLAIN),
    "prepared": (faulty.choosing(faulty.named_nodes), UNNAMED),
    "side-by-side": (faulty.choosing(faulty.smallest_graph), residual("conv", "conv")),
    "strip-and-repeat": (faulty.weights_off_the_grid, PLAIN),
}


@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_quantizer_that_breaks_the_relation_is_caught(name: str) -> None:
    function, drawn = FAULTS[name]
    found = [v for seed in range(4) for v in find_relation(name).check(trial(function, drawn, seed=seed))]
    assert found
    for violation in found:
        assert violation.expected != violation.found
        assert violation.where
        assert name in (violation.invariant, "invariants")
        assert violation.cause or name in ("invariants", "deterministic")


@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_quantizer_that_does_nothing_keeps_the_relation(name: str) -> None:
    idle = faulty.choosing(lambda model: ())
    drawn = FAULTS[name][1] if name != "ground-truth" else residual("conv", "mlp")
    only_skips = name in ("invariants",)  # no pair on the skip of an Add whose convolution is float: that is right
    assert not find_relation(name).check(trial(idle, drawn)) or only_skips


def test_an_order_of_sets_is_caught() -> None:
    spec = "python:faulty_quantizers:by_hash"
    drawn = residual("conv", "conv", "conv", "conv")
    trials = [trial_of(resolve(spec), drawn, spec=spec, seed=seed) for seed in range(3)]
    found = [v for t in trials for v in find_relation("hash-seed").check(t)]
    assert found
    assert all("PYTHONHASHSEED" in violation.found for violation in found)


def test_without_a_spec_the_hash_seed_is_skipped() -> None:
    verdict = find_relation("hash-seed").judge(trial(faulty.by_hash, PLAIN))
    assert verdict.skipped == "it needs spec"
    assert not verdict.violations


def test_samples_that_are_changed_are_seen() -> None:
    (violation,) = find_relation("input-unchanged").check(trial(faulty.writing_in_samples, PLAIN))
    assert violation.where == 'calibration sample of input "x0"'


def test_a_violation_names_the_edge_and_both_decisions() -> None:
    model = text_model("a = Conv(x, w) y = Add(a, x)")
    (found, other) = find_relation("swapped-operands").check(
        Trial(faulty.quantizer(faulty.choosing(faulty.input_0_of_adds)), model)
    )
    assert found.where == 'input "a" of Add "y"'
    assert found.expected == "int8, as in the model that was given"
    assert found.found == "float, in the model with the operands of commutative nodes swapped"
    assert found.cause == "Add input: int8 and float"
    assert other.where == 'input "x" of Add "y"'


def test_a_failure_on_the_changed_model_alone_is_a_violation() -> None:
    (violation,) = find_relation("unnamed-nodes").check(trial(faulty.crashing_on_unnamed_nodes, PLAIN))
    assert violation.found.startswith("KeyError")
    assert violation.cause == "KeyError in faulty_quantizers.py, crashing_on_unnamed_nodes"


def test_what_isnt_offered_is_no_violation() -> None:
    def refusing(model, feeds, options):
        raise UnsupportedError("no such operators")

    for name in IN_PROCESS:
        assert not find_relation(name).check(trial(refusing, PLAIN)), name


def test_the_model_of_a_trial_is_quantized_once_for_all() -> None:
    calls = []

    def counted(model, feeds, options):
        calls.append(model)
        return faulty.with_pairs(model, ())

    shared = trial(counted, PLAIN)
    for name in ("no-crash", "invariants", "ground-truth", "runs", "close-to-float", "input-unchanged"):
        find_relation(name).check(shared)
    assert len(calls) == 1


def test_a_relation_is_only_checked_for_its_policies() -> None:
    own = CallableQuantizer("own", "0", "onnxruntime", faulty.choosing(faulty.both_inputs_of_adds))
    verdict = find_relation("ground-truth").judge(trial_of(own, PLAIN))
    assert verdict.skipped == "it doesn't hold for policy onnxruntime"


def test_outputs_behind_indices_arent_measured() -> None:
    weak = weaken(build_precision(PrecisionTopology((Piece("matmul"),))), ["topk_computed"])
    assert not find_relation("close-to-float").check(trial(faulty.choosing(lambda model: ()), weak))


def test_every_relation_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "relations.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in NAMES)


def test_names_are_unique_and_an_unknown_one_is_an_error() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert all(isinstance(relation, Relation) and relation.says.endswith((".", ")")) for relation in RELATIONS)
    with pytest.raises(UsageError, match='did you mean "renamed"'):
        find_relation("rename")
