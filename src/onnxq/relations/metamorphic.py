"""From transformations to what relations look for: the same decisions before and after a change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from onnx import ModelProto

from onnxq.errors import OnnxqError, UnsupportedError
from onnxq.invariants import Violation
from onnxq.protos import opset_version, walk_nodes
from onnxq.relations.hash_seed import quantize_with_hash_seed
from onnxq.relations.transforms import Transform, union
from onnxq.relations.trial import NotApplicableError, Outcome, Trial, result_of
from onnxq.relations.variant import Variant
from onnxq.relations.wires import Decided, Wire, differences
from onnxq.rewrite import strip_pairs
from onnxq.strategies import Block, Topology, build
from onnxq.strategies.topology import NEWEST_OPSET, OLDEST_OPSET

Find = Callable[[Trial], Iterator[Violation]]

COMPANION = (
    Block("projection", activation="relu"),
    Block("squeeze_excite"),
    Block("add", other=1, swap=True),
)
"""What stands beside a model unless the trial says what: of each kind of decision some."""

HASH_SEEDS = (1, 2)
"""PYTHONHASHSEED of the two processes that are compared: always the same, since they may be kept for the next model."""

_WRITTEN_BY_TOOLS = frozenset({"Constant", "Identity", "QuantizeLinear", "DequantizeLinear"})


def keeps_decisions(name: str, transform: Transform, change: str) -> Find:
    """What a change of the model alters in the decisions.

    Args:
        name: Of the relation.
        transform: The change.
        change: The changed model in words, to follow "in".
    """

    def find(trial: Trial) -> Iterator[Violation]:
        before = trial.decided
        try:
            variant = transform(trial.model, trial.rng(name))
        except OnnxqError as error:
            raise NotApplicableError(f"the model can't be changed so: {error}") from None
        if variant.model == trial.model:
            raise NotApplicableError("there is nothing in the model to change")
        outcome = trial.quantize_variant(variant)
        yield from _compare(name, trial, before, variant, outcome, change)

    return find


def same_beside_another(trial: Trial) -> Iterator[Violation]:
    """Which decisions change, of either, when another model stands beside the model in one graph."""
    before, alone = trial.decided, _companion(trial)
    mine, its = union(trial.model, alone.model, trial.rng("side-by-side"))
    outcome = trial.quantize(mine.model, [mine.feed(feed) for feed in trial.feeds])
    change = "a graph with another model beside it"
    yield from _compare("side-by-side", trial, before, mine, outcome, change)
    if outcome.model is not None:
        yield from _compare("side-by-side", trial, alone.decided, its, outcome, change)


def same_after_stripping(trial: Trial) -> Iterator[Violation]:
    """Which decisions change when the result is stripped of its Q/DQ and quantized again."""
    first = trial.outcome
    if not _is_just_pairs(trial.model, result_of(first)):
        first = trial.quantize(trial.model, trial.feeds, high_precision_dtype="fp32")
        if not _is_just_pairs(trial.model, result_of(first)):
            raise NotApplicableError("the quantizer changes more than Q/DQ")
    stripped = Variant(strip_pairs(result_of(first)))
    before = trial.decided_of(trial.pair_of(trial.model, result_of(first)))
    options = {} if first is trial.outcome else {"high_precision_dtype": "fp32"}
    outcome = trial.quantize(stripped.model, [stripped.feed(feed) for feed in trial.feeds], **options)
    change = "the result with its Q/DQ taken out, quantized again"
    yield from _compare("strip-and-repeat", trial, before, stripped, outcome, change)


def same_with_other_hash_seed(trial: Trial) -> Iterator[Violation]:
    """Which decisions differ between two processes in which sets have other orders."""
    first, second = (quantize_with_hash_seed(trial, seed) for seed in HASH_SEEDS)
    result_of(first)
    before = trial.decided_of(trial.pair_of(trial.model, result_of(first)))
    change = f"a process with PYTHONHASHSEED={HASH_SEEDS[1]}, not {HASH_SEEDS[0]}"
    yield from _compare("hash-seed", trial, before, Variant(trial.model), second, change)


def _compare(
    name: str, trial: Trial, before: Mapping[Wire, Decided], variant: Variant, outcome: Outcome, change: str
) -> Iterator[Violation]:
    if isinstance(outcome.error, UnsupportedError):
        raise NotApplicableError(outcome.failure)
    if outcome.model is None:
        expected = "quantized, as the model that was given is"
        yield Violation(name, "model", expected, f"{outcome.failure}, in {change}", cause=outcome.cause)
        return
    pair = trial.pair_of(variant.model, outcome.model)
    yield from differences(name, before, trial.decided_of(pair, variant.old_names), change)


def _companion(trial: Trial) -> Trial:
    """The trial of the model that is put beside the one of a trial."""
    opset = opset_version(trial.model)
    model = trial.companion
    if model is None and OLDEST_OPSET <= opset <= NEWEST_OPSET:
        model = build(Topology(COMPANION, opset=opset)).model
    if model is None or opset_version(model) != opset:
        raise NotApplicableError(f"there is no model of opset {opset} to put beside it")
    return Trial(trial.quantizer, model, options=trial.options, settings=trial.settings)


def _is_just_pairs(before: ModelProto, after: ModelProto) -> bool:
    """Whether a quantizer has left all operators but Q/DQ as they were."""
    counts = [
        Counter(node.op_type for node in walk_nodes(model.graph.node) if node.op_type not in _WRITTEN_BY_TOOLS)
        for model in (before, after)
    ]
    return counts[0] == counts[1]
