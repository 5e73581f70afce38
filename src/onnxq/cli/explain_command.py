"""`onnxq explain`: the decision of each edge, and why."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Iterable

from onnxq.cli.arguments import model_path
from onnxq.cli.display import show
from onnxq.cli.explain_display import explanation_text
from onnxq.errors import UsageError
from onnxq.graph import ABSENT
from onnxq.pipeline import make_plan
from onnxq.placement import Placement, SelectionOptions
from onnxq.placement.selection import near_matches


def explain_command(options: Namespace) -> int:
    """`onnxq explain`: the decision of each edge, and why."""
    selection = SelectionOptions(
        options.op_types_to_quantize,
        options.op_types_to_exclude,
        options.nodes_to_quantize,
        options.nodes_to_exclude,
        options.quantize_outputs,
    )
    placement = make_plan(
        model_path(options), selection, policy=options.policy, activation_type=options.activation_type
    ).placement
    chosen = _chosen(placement, options.node, options.tensor)
    show(chosen.to_json() if options.json else explanation_text(chosen, of=placement))
    return 0


def _chosen(placement: Placement, node: str | None, tensor: str | None) -> Placement:
    """What `--node` and `--tensor` leave: edges, and graph outputs, which belong to the node that yields them."""
    chosen, labels = set(placement), placement.labels
    outputs = {output.name: output.producer for output in placement.outputs}
    if node is not None:
        matches = _matcher("--node", node, [name for n in placement.nodes for name in (n.node, n.output)], "node")
        chosen = {e for e in chosen if matches(labels[e].node) or matches(labels[e].output)}
        outputs = {
            name: n
            for name, n in outputs.items()
            if n != ABSENT and (matches(placement.nodes[n].node) or matches(placement.nodes[n].output))
        }
        if not chosen and not outputs:
            raise UsageError(f'--node: no float tensor goes into "{node}", so there is nothing to explain')
    if tensor is not None:
        known = [*(label.tensor for label in labels.values()), *(output.name for output in placement.outputs)]
        matches = _matcher("--tensor", tensor, known, "float tensor that is read")
        chosen = {e for e in chosen if matches(labels[e].tensor)}
        outputs = {name: n for name, n in outputs.items() if matches(name)}
        if not chosen and not outputs:
            raise UsageError(f'--tensor: "{tensor}" isn\'t read by what --node leaves, "{node}"')
    return placement.only(chosen, set(outputs))


def _matcher(option: str, wanted: str, known: Iterable[str], what: str) -> Callable[[str], bool]:
    """Whether a name is the wanted one; if no name is, whether the wanted one as a regular expression matches it.

    Raises:
        UsageError: It is neither.
    """
    names = set(known) - {""}
    if wanted in names:
        return wanted.__eq__
    try:
        pattern = re.compile(wanted)
    except re.error as error:
        raise UsageError(
            f'{option}: no {what} has the name "{wanted}"{near_matches(wanted, names)}, '
            f"and it is no regular expression: {error}"
        ) from None
    if not any(map(pattern.fullmatch, names)):
        raise UsageError(
            f'{option}: no {what} has a name that is "{wanted}" or matches it{near_matches(wanted, names)}'
        )
    return lambda name: pattern.fullmatch(name) is not None
