"""Comparing two placements edge by edge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxq.diff.view import OUTPUT, WRITTEN_BY_TOOLS, EdgeKey, EdgeView, PlacementView, Scaling


class Kind(Enum):
    """What differs. The value says it for a person, after a number of edges."""

    ONLY_A = "quantized only in a"
    ONLY_B = "quantized only in b"
    UNKNOWN_IN_A = "quantized in b, of a node that a doesn't have"
    UNKNOWN_IN_B = "quantized in a, of a node that b doesn't have"
    TYPE = "of another type"
    AXIS = "with scales along another axis"
    SCALE = "with other scales"
    ZERO_POINT = "with another zero point"


@dataclass(frozen=True, slots=True)
class Difference:
    """One edge that isn't the same.

    Attributes:
        key: The edge.
        edge: Its tensor and node.
        kinds: What differs, at least one.
        a: How the first side has it, None for float or unknown.
        b: How the second side has it.
        scale_difference: Greatest relative difference of two scales; None if they can't be compared.
    """

    key: EdgeKey
    edge: EdgeView
    kinds: tuple[Kind, ...]
    a: Scaling | None
    b: Scaling | None
    scale_difference: float | None = None


@dataclass(frozen=True, slots=True)
class PlacementDiff:
    """What a comparison found.

    Attributes:
        a: The first side.
        b: The second side.
        differences: The edges that aren't the same, in the order of the float model.
        same: Number of edges that both sides quantize in the same way.
        scale_difference: Greatest relative difference of scales among those; None if none could be compared.
        unmatched_a: Nodes of the first side without a counterpart in the second, for a person.
        unmatched_b: The other way round.
    """

    a: PlacementView
    b: PlacementView
    differences: tuple[Difference, ...]
    same: int
    scale_difference: float | None
    unmatched_a: tuple[str, ...]
    unmatched_b: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether nothing differs. Two sides that share no node are not the same, though no edge differs."""
        return not self.differences and self.has_common_nodes

    @property
    def has_common_nodes(self) -> bool:
        """Whether any node was matched, as far as there is any, and both sides list all of theirs."""
        if not (self.a.is_complete and self.b.is_complete and (self.a.edges or self.b.edges)):
            return True
        return not {key.node for key in self.a.edges}.isdisjoint(key.node for key in self.b.edges)


def compare(a: PlacementView, b: PlacementView, *, scale_tolerance: float = 0.05) -> PlacementDiff:
    """Compare two placements.

    Args:
        a: The first side.
        b: The second side, keyed by the same float model.
        scale_tolerance: Two scales may differ by this part of the larger one.

    Returns:
        What differs.
    """
    nodes_a, nodes_b = ({key.node for key in side.edges} for side in (a, b))
    differences, same, worst = [], 0, None
    for key in _keys(a, b):
        edge = a.edges[key] if key in a.edges else b.edges[key]
        one, two = (side.edges[key].scaling if key in side.edges else None for side in (a, b))
        if one is None and two is None:
            continue
        ratio = _scale_difference(one, two)
        kinds = tuple(_kinds(one, two, ratio, scale_tolerance))
        is_edge = key.input != OUTPUT
        if is_edge and one is None and a.is_complete and key.node not in nodes_a:
            kinds = (Kind.UNKNOWN_IN_A,)
        if is_edge and two is None and b.is_complete and key.node not in nodes_b:
            kinds = (Kind.UNKNOWN_IN_B,)
        if kinds:
            differences.append(Difference(key, edge, kinds, one, two, ratio))
        else:
            same += 1
            worst = ratio if worst is None else max(worst, ratio or 0.0)
    return PlacementDiff(a, b, tuple(differences), same, worst, _unmatched(a, b, nodes_b), _unmatched(b, a, nodes_a))


def _keys(a: PlacementView, b: PlacementView) -> dict[EdgeKey, None]:
    """All edges, in the order of the side that lists more of them."""
    first, second = (b, a) if b.is_complete and not a.is_complete else (a, b)
    return dict.fromkeys((*first.edges, *second.edges))


def _unmatched(side: PlacementView, other: PlacementView, known: set[str]) -> tuple[str, ...]:
    """Nodes that only one side has. A side that doesn't list float edges knows nothing of most nodes."""
    left: dict[str, str] = {}
    if other.is_complete:
        left = {
            key.node: f'{edge.op_type} "{edge.node or key.node}"'
            for key, edge in side.edges.items()
            if key.node not in known and key.input != OUTPUT and edge.op_type not in WRITTEN_BY_TOOLS
        }
    return (*left.values(), *side.extra)


def _kinds(one: Scaling | None, two: Scaling | None, ratio: float | None, tolerance: float) -> Iterator[Kind]:
    if one is None or two is None:
        yield Kind.ONLY_B if one is None else Kind.ONLY_A
        return
    if one.element_type != two.element_type:
        yield Kind.TYPE
    if one.axis != two.axis:
        yield Kind.AXIS
    if ratio is not None and ratio > tolerance:
        yield Kind.SCALE
    if one.scale is not None and two.scale is not None and not _same_zero_points(one, two):
        yield Kind.ZERO_POINT


def _scale_difference(one: Scaling | None, two: Scaling | None) -> float | None:
    """Greatest relative difference of two scales, in parts of the larger one."""
    if one is None or two is None or one.axis != two.axis or one.scale is None or two.scale is None:
        return None
    left, right = _flat(one.scale), _flat(two.scale)
    if left.shape != right.shape:
        return float("inf")
    larger = np.maximum(np.abs(left), np.abs(right))
    with np.errstate(invalid="ignore"):
        ratios = np.where(left == right, 0.0, np.abs(left - right) / np.where(larger > 0, larger, 1.0))
    worst = float(np.max(ratios, initial=0.0))
    return worst if np.isfinite(worst) else float("inf")


def _same_zero_points(one: Scaling, two: Scaling) -> bool:
    left, right = (np.zeros(1) if s.zero_point is None else _flat(s.zero_point) for s in (one, two))
    return (left.size == right.size or 1 in (left.size, right.size)) and bool(np.all(left == right))


def _flat(values: NDArray[Any]) -> NDArray[np.float64]:
    return values.astype(np.float64).reshape(-1)
