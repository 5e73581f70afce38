"""Oracles: what one result of a quantizer must be, whatever the model is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import ModelProto

from onnxq.errors import InvalidModelError, OnnxqError, UnsupportedError
from onnxq.invariants import INVARIANTS, ModelPair, Violation, quantized_inputs
from onnxq.numerics import run_model
from onnxq.placement import SelectionOptions
from onnxq.protos import NameSource, describe, walk_nodes
from onnxq.relations.steps import float_outputs, steps_apart
from onnxq.relations.trial import NotApplicableError, Trial, result_of
from onnxq.relations.variant import Variant, copy_model

MOST_STEPS = 64
"""How far an output may be off, in steps of 1/127 of its greatest magnitude: half of it. Every edge between may add one
step, times whatever the weights behind it make of that; a wrong scale, axis or operand is off by more. The same
holds for a rounding that falls the other way when the runtime fuses operators."""


def no_crash(trial: Trial) -> Iterator[Violation]:
    """What the quantizer raises on a sound model, except that it doesn't offer what was asked for."""
    if trial.outcome.error is not None and not isinstance(trial.outcome.error, UnsupportedError):
        expected = "quantized: the checker accepts it, and onnxruntime runs it"
        yield Violation("no-crash", "model", expected, trial.outcome.failure, cause=trial.outcome.cause)


def invariants(trial: Trial) -> Iterator[Violation]:
    """Broken invariants, each under its own name."""
    pair = trial.pair
    try:
        yield from (violation for find in INVARIANTS.values() for violation in find(pair))
    except OnnxqError as error:
        raise NotApplicableError(f"onnxq can't read the float model: {error}") from None


def ground_truth(trial: Trial) -> Iterator[Violation]:
    """Adds that read quantized what isn't their skip, or don't read that."""
    if trial.pair.selection != SelectionOptions():
        raise NotApplicableError("the labels hold where everything may be quantized")
    try:
        found, kinds = quantized_inputs(trial.pair), _backbone_types(trial.pair)
    except OnnxqError as error:
        raise NotApplicableError(f"onnxq can't read the float model: {error}") from None
    for add in trial.adds:
        got = found.get(add.output)
        if got is None:
            continue
        if add.tie:
            is_right, expected = len(got) == 1, f"exactly one of {_list(add.inputs)} quantized ({add.rule})"
        else:
            wanted = [add.skip] if add.skip else []
            is_right, expected = got == wanted, f"{_list(wanted)} quantized ({add.rule})"
        if not is_right:
            which = {add.skip: "skip", add.trunk: "trunk"}
            seen = " and ".join(sorted(which.get(name, "input") for name in got)) or "nothing"
            cause = f"{add.rule}, {kinds.get(add.output, 'no backbone')}: {seen}"
            where = f'Add of {_list(add.inputs)} to "{add.output}"'
            yield Violation("ground-truth", where, expected, f"{_list(got)} quantized", cause=cause)


def _backbone_types(pair: ModelPair) -> dict[str, str]:
    """Key of each Add -> op types of the backbones of its inputs: what a quantizer gets wrong depends on them."""
    nodes = pair.plan.index.nodes
    backbones = {r.node: sorted({nodes[n].op_type for n in r.looked_at}) for r in pair.plan.placement.residuals}
    return {pair.key(add): " and ".join(op_types) for add, op_types in backbones.items() if op_types}


def runs(trial: Trial) -> Iterator[Violation]:
    """Why onnxruntime doesn't load or run the result of a float model that it runs."""
    for optimize in (False, True):
        try:
            run_model(trial.quantized, trial.feeds, optimize=optimize)
        except InvalidModelError as error:
            cause = f"optimizations {'on' if optimize else 'off'}"
            yield Violation("runs", "model", "onnxruntime runs it", str(error), cause=cause)


def close_to_float(trial: Trial) -> Iterator[Violation]:
    """Outputs of the result that are too far from what the float model computes."""
    expected = f"at most {MOST_STEPS} steps of 1/127 of its greatest magnitude from what the float model computes"
    yield from _too_far(
        trial, "close-to-float", trial.reference, _outputs(trial.quantized, trial), MOST_STEPS, expected
    )


def same_when_optimized(trial: Trial) -> Iterator[Violation]:
    """Outputs of the result that change when onnxruntime fuses operators."""
    plain, fused = (_outputs(trial.quantized, trial, optimize=optimize) for optimize in (False, True))
    expected = f"at most {MOST_STEPS} steps between onnxruntime's optimizations off and on"
    yield from _too_far(trial, "optimizations", plain, fused, MOST_STEPS, expected)


def deterministic(trial: Trial) -> Iterator[Violation]:
    """In what two results of one process differ."""
    first = trial.quantized
    again = trial.quantize(trial.model, trial.feeds)
    if again.model is None:
        found = again.failure
        yield Violation("deterministic", "model", "quantized, as the first time", found, cause=again.cause)
    elif difference := graph_difference(first, again.model):
        yield Violation("deterministic", "model", "the same graph when it is quantized once more", difference)


def input_unchanged(trial: Trial) -> Iterator[Violation]:
    """What the quantizer changed in what it was given."""
    outcome = trial.outcome
    if difference := graph_difference(trial.model, outcome.given):
        expected = "the model that was given is left as it was"
        yield Violation("input-unchanged", "model", expected, difference, cause="model")
    for before, after in zip(trial.feeds, outcome.feeds, strict=True):
        for name, value in before.items():
            if name not in after or not np.array_equal(value, after[name], equal_nan=value.dtype.kind == "f"):
                where = f'calibration sample of input "{name}"'
                yield Violation("input-unchanged", where, "left as it was", "changed", cause="calibration data")


def identity_when_all_excluded(trial: Trial) -> Iterator[Violation]:
    """Output bits that change although every node is excluded."""
    named = Variant(_named(trial.model))
    outcome = trial.quantize(named.model, trial.feeds, nodes_to_exclude=[".*"], high_precision_dtype="fp32")
    if outcome.model is None and not isinstance(outcome.error, UnsupportedError):
        expected = "the float model, since every node is excluded"
        yield Violation("exclude-all", "model", expected, outcome.failure, cause=outcome.cause)
        return
    results = _outputs(result_of(outcome), trial)
    for before, after in zip(trial.reference, results, strict=True):
        for name, value in before.items():
            same = name in after and _is_same(value, after[name])
            if not same:
                expected = "bit for bit what the float model computes, since every node is excluded"
                yield Violation("exclude-all", f'output "{name}"', expected, "other bits", cause="outputs")


def graph_difference(one: ModelProto, other: ModelProto) -> str:
    """The first thing in which two graphs differ, in words; "" if they don't."""
    if one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True):
        return ""
    for field, kind in (("node", "nodes"), ("initializer", "initializers"), ("input", "inputs"), ("output", "outputs")):
        before, after = getattr(one.graph, field), getattr(other.graph, field)
        if len(before) != len(after):
            return f"{len(after)} {kind}, not {len(before)}"
        for position, (a, b) in enumerate(zip(before, after, strict=True)):
            if a != b:
                names = [describe(m) if field == "node" else f'"{m.name}"' for m in (b, a)]
                return f"among its {kind}, number {position} is {names[0]}, and was {names[1]}"
    return "other metadata"


def _outputs(model: ModelProto, trial: Trial, *, optimize: bool = False) -> list[dict[str, object]]:
    try:
        # Kernels that saturate are a matter of the processor, not of the quantizer.
        return run_model(model, trial.feeds, optimize=optimize, exact_integers=True)
    except InvalidModelError as error:
        raise NotApplicableError(f"the result doesn't run: {error}") from None  # "runs" reports it


def _too_far(
    trial: Trial,
    name: str,
    before: list[dict[str, object]],
    after: list[dict[str, object]],
    most: int,
    expected: str,
) -> Iterator[Violation]:
    try:
        outputs = float_outputs(trial.pair.plan.index)
    except OnnxqError as error:
        raise NotApplicableError(f"onnxq can't read the float model: {error}") from None
    for output, is_smooth in outputs.items():
        worst = max(steps_apart(a[output], b.get(output)) for a, b in zip(before, after, strict=True))
        if np.isinf(worst):
            found = "it isn't there, has another shape, or isn't finite where it should be"
            yield Violation(name, f'output "{output}"', expected, found, cause="not finite")
        elif is_smooth and worst > most:
            yield Violation(name, f'output "{output}"', expected, f"{worst:.0f} steps", cause="outputs")


def _named(model: ModelProto) -> ModelProto:
    """A copy in which every node has a name of its own: some tools know nodes by nothing else."""
    copy, names = copy_model(model), NameSource(model)
    for node in walk_nodes(copy.graph.node):
        node.name = names.fresh("node")
    return copy


def _is_same(value: object, other: object) -> bool:
    if not isinstance(value, np.ndarray) or not isinstance(other, np.ndarray):
        return str(value) == str(other)
    return value.dtype == other.dtype and value.shape == other.shape and value.tobytes() == other.tobytes()


def _list(names: object) -> str:
    return " and ".join(f'"{name}"' for name in names) or "nothing"  # type: ignore[attr-defined]
