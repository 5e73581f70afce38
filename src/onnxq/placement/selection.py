"""Which nodes the user wants quantized: op types and regular expressions over node names, resolved to sets of nodes.

From here on a selection is a set of node numbers. A pattern is never matched twice, so excluding `mm` can't exclude
`mm_big` by accident somewhere later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import onnx

from onnxq.errors import UnsupportedError, UsageError
from onnxq.graph import GraphIndex
from onnxq.placement.never import NEVER_OP_TYPES
from onnxq.placement.ops import LINEAR, NORMALIZATIONS, POOLS, RESIDUAL

DEFAULT_OP_TYPES = LINEAR | RESIDUAL | POOLS | NORMALIZATIONS | {"ReduceMean"}
"""What is quantized where its rule says so, when the user names nothing: linear ops, residual Adds, pooling ops (a
ReduceMean only as a global pool), and LayerNormalization behind a convolution."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The user's wishes, resolved.

    Attributes:
        quantize: Numbers of the nodes to quantize where the rules allow it.
        by_name: Those of them that the user asked for by name or type, so that their inputs are quantized even where
            no rule of its own says so.
        exclude: Numbers of the nodes that must stay float.
    """

    quantize: frozenset[int]
    by_name: frozenset[int]
    exclude: frozenset[int]


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """The user's wishes, as given.

    Attributes:
        op_types_to_quantize: Only these op types; None for the default ones.
        op_types_to_exclude: Never these op types.
        nodes_to_quantize: Only nodes whose whole name matches one of these regular expressions (and nodes of
            `op_types_to_quantize`, if that is given too); None for no such limit.
        nodes_to_exclude: Never nodes whose whole name matches one of these.
        quantize_outputs: Whether graph outputs that come out of quantized ops get Q/DQ too.
    """

    op_types_to_quantize: Sequence[str] | None = None
    op_types_to_exclude: Sequence[str] | None = None
    nodes_to_quantize: Sequence[str] | None = None
    nodes_to_exclude: Sequence[str] | None = None
    quantize_outputs: bool = False


def select(
    index: GraphIndex, options: SelectionOptions, default_op_types: frozenset[str] = DEFAULT_OP_TYPES
) -> Selection:
    """Resolve the options.

    Args:
        index: The model.
        options: What the user said.
        default_op_types: What is quantized when the user names nothing.

    Raises:
        UsageError: An option has the wrong form, a pattern matches no node, or an op type is unknown.
        UnsupportedError: An op type that is never quantized was asked for.
    """
    wanted_types = _op_types(index, "op_types_to_quantize", options.op_types_to_quantize)
    never = sorted(wanted_types & NEVER_OP_TYPES)
    if never:
        raise UnsupportedError(f"op_types_to_quantize: inputs of {never[0]} are never quantized; leave it out")
    named = matching_nodes(index, "nodes_to_quantize", options.nodes_to_quantize)
    by_type = {n for n, node in enumerate(index.nodes) if node.op_type in wanted_types}
    exclude = matching_nodes(index, "nodes_to_exclude", options.nodes_to_exclude)
    exclude |= nodes_of_types(index, "op_types_to_exclude", options.op_types_to_exclude)
    by_name = named | by_type
    if options.op_types_to_quantize is None and options.nodes_to_quantize is None:
        chosen = {n for n, node in enumerate(index.nodes) if node.op_type in default_op_types}
    else:
        chosen = by_name
    return Selection(frozenset(chosen - exclude), frozenset(by_name - exclude), frozenset(exclude))


def _op_types(index: GraphIndex, option: str, given: Sequence[str] | None) -> set[str]:
    """Check the spelling of op types: each must be an operator of ONNX or occur in the model."""
    names = _strings(option, given)
    known = {node.op_type for node in index.nodes} | {schema.name for schema in onnx.defs.get_all_schemas()}
    for name in names:
        if name not in known:
            raise UsageError(f'{option}: "{name}" is no operator{near_matches(name, known)}')
    return set(names)


def nodes_of_types(index: GraphIndex, option: str, given: Sequence[str] | None) -> set[int]:
    """Numbers of the nodes of the given op types.

    Args:
        index: The model.
        option: Name of the option, for messages.
        given: Op types; None for none.

    Raises:
        UsageError: An op type is unknown.
    """
    types = _op_types(index, option, given)
    return {n for n, node in enumerate(index.nodes) if node.op_type in types}


def matching_nodes(index: GraphIndex, option: str, given: Sequence[str] | None) -> set[int]:
    """Numbers of the nodes whose whole name matches one of the patterns.

    Args:
        index: The model.
        option: Name of the option, for messages.
        given: Regular expressions; None for none.

    Raises:
        UsageError: A pattern is malformed or matches nothing.
    """
    found: set[int] = set()
    for pattern in _strings(option, given):
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise UsageError(f'{option}: "{pattern}" is no regular expression: {error}') from None
        matches = {n for n, node in enumerate(index.nodes) if compiled.fullmatch(node.name)}
        if not matches:
            near = near_matches(pattern, {node.name for node in index.nodes})
            raise UsageError(f'{option}: no node\'s whole name matches "{pattern}"{near}')
        found |= matches
    return found


def _strings(option: str, given: Sequence[str] | None) -> list[str]:
    if given is None:
        return []
    if isinstance(given, str) or not all(isinstance(item, str) for item in given):
        raise UsageError(f"{option}: a list of strings is wanted, not {given!r}")
    return list(given)


def near_matches(name: str, known: set[str]) -> str:
    """The nearest known names as a clause, for an error message."""
    lowered = {k.lower(): k for k in sorted(known)}
    matches = [lowered[m] for m in get_close_matches(name.lower(), list(lowered), n=3, cutoff=0.5)]
    return "; near matches: " + ", ".join(f'"{m}"' for m in matches) if matches else ""
