"""The registry: every relation that a quantizer is tested by.

In use::

    for relation in RELATIONS:
        for violation in relation.check(trial_of(quantizer, labelled)):
            ...
"""

from __future__ import annotations

from difflib import get_close_matches

from onnxq.errors import UsageError
from onnxq.policies import POLICIES, Policy
from onnxq.relations import metamorphic, oracles, storage, transforms
from onnxq.relations.relation import Relation
from onnxq.relations.transforms import Transform


def find_relation(name: str) -> Relation:
    """The relation of a name.

    Raises:
        UsageError: There is none.
    """
    known = {relation.name: relation for relation in RELATIONS}
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise UsageError(f'"{name}" is no relation{hint} (there are: {", ".join(known)})')
    return known[name]


def _kept_by(
    name: str, transform: Transform, change: str, says: str, policies: tuple[Policy, ...] = POLICIES
) -> Relation:
    return Relation(name, says, metamorphic.keeps_decisions(name, transform, change), policies, quantizations=2)


RELATIONS: tuple[Relation, ...] = (
    Relation(
        "no-crash",
        "A model that the checker accepts and onnxruntime runs is quantized, without an error.",
        oracles.no_crash,
        needs=("a model that runs",),
    ),
    Relation("invariants", "All invariants hold of the result.", oracles.invariants),
    Relation(
        "ground-truth",
        "Of each residual Add exactly the skip is quantized, and no input of any other Add.",
        oracles.ground_truth,
        policies=("tensorrt",),
        needs=("ground truth", "a model that runs"),
    ),
    Relation(
        "runs",
        "onnxruntime loads and runs the result, with its optimizations off and on.",
        oracles.runs,
        needs=("a model that runs",),
    ),
    Relation(
        "close-to-float",
        f"No output is more than {oracles.MOST_STEPS} steps from what the float model computes.",
        oracles.close_to_float,
        needs=("a model that runs",),
    ),
    Relation(
        "optimizations",
        f"onnxruntime's optimizations move no output by more than {oracles.MOST_STEPS} steps.",
        oracles.same_when_optimized,
        needs=("a model that runs",),
    ),
    Relation(
        "deterministic", "The same model gives the same result once more.", oracles.deterministic, quantizations=2
    ),
    Relation("input-unchanged", "The model and the samples that are given aren't changed.", oracles.input_unchanged),
    Relation(
        "exclude-all",
        "With every node excluded, the result computes bit for bit what the float model does.",
        oracles.identity_when_all_excluded,
        quantizations=2,
        needs=("a model that runs",),
    ),
    _kept_by(
        "swapped-operands",
        transforms.swap_operands,
        "the model with the operands of commutative nodes swapped",
        "The order of the operands of Add, Mul, Sum, Max, Min, ... decides nothing.",
    ),
    _kept_by(
        "renamed",
        transforms.rename_all,
        "the model with all nodes, tensors and symbols renamed",
        "Names of nodes, tensors and symbolic dims decide nothing.",
    ),
    _kept_by(
        "unnamed-nodes",
        transforms.unname_nodes,
        "the model without node names",
        "Nodes need no names.",
    ),
    _kept_by(
        "equal-node-names",
        transforms.name_nodes_alike,
        "the model with one name for all nodes",
        "Nodes may all have one name. (onnxruntime refuses such a model, so tools that calibrate with it may as well.)",
    ),
    _kept_by(
        "reordered",
        transforms.reorder_nodes,
        "the model with its nodes in another order",
        "Any order of nodes that is valid, and of initializers, gives the same.",
    ),
    _kept_by(
        "identities",
        transforms.insert_identities,
        "the model with Identity nodes put in",
        "Identity nodes on data edges change nothing.",
        policies=("tensorrt",),
    ),
    _kept_by(
        "identities-on-constants",
        transforms.insert_identities_on_constants,
        "the model with Identity nodes put behind constants",
        "Identity nodes between weights and what reads them change nothing.",
        policies=("tensorrt",),
    ),
    _kept_by(
        "dead-nodes",
        transforms.add_dead_nodes,
        "the model with nodes put in that nothing reads",
        "Nodes that no output depends on change nothing.",
    ),
    _kept_by(
        "constants-as-nodes",
        storage.constants_as_nodes,
        "the model with Constant nodes for initializers",
        "Weights may be Constant nodes.",
    ),
    _kept_by(
        "constants-as-initializers",
        storage.constants_as_initializers,
        "the model with initializers for Constant nodes",
        "Constant nodes may be initializers.",
    ),
    _kept_by(
        "initializers-as-inputs",
        storage.list_initializers_as_inputs,
        "the model with its initializers listed among the inputs",
        "Initializers may be listed among the graph inputs, as IR version 3 wants it.",
        policies=("tensorrt",),
    ),
    _kept_by(
        "raised-opset",
        storage.raise_opset,
        f"the model converted to opset {storage.RAISED_OPSET}",
        "A higher opset changes nothing of the nodes that it leaves as they are.",
    ),
    _kept_by(
        "declared-types",
        storage.declare_all,
        "the model with the types of all tensors declared",
        "True value_info of all tensors changes nothing.",
    ),
    _kept_by(
        "no-value-info",
        storage.drop_value_info,
        "the model without value_info",
        "Missing value_info changes nothing.",
    ),
    _kept_by(
        "stale-value-info",
        storage.falsify_value_info,
        "the model with wrong shapes in value_info",
        "Wrong value_info changes nothing.",
    ),
    _kept_by(
        "prepared",
        storage.prepared,
        "the model after onnxq's preparation",
        "A model that is prepared already (unique names, corrected declarations) gives the same.",
    ),
    Relation(
        "side-by-side",
        "Two models side by side in one graph get what each gets alone.",
        metamorphic.same_beside_another,
        quantizations=3,
    ),
    Relation(
        "strip-and-repeat",
        "Quantizing the result without its Q/DQ gives the same again.",
        metamorphic.same_after_stripping,
        quantizations=2,
    ),
    Relation(
        "hash-seed",
        "Processes with different hash seeds decide the same.",
        metamorphic.same_with_other_hash_seed,
        quantizations=3,
        needs=("spec",),
    ),
)
"""All relations: the oracles, which judge one result, then those on changed models, the costly ones last."""
