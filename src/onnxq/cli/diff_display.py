"""What `onnxq diff` prints: below each tensor the edges that read it and differ.

tensor "skip"
- Add "add" input 1: int8                                     quantized in a only
+ Conv "conv1" input 0: int8                                  quantized in b only
~ Conv "conv2" input 1: int8 per axis 0, scale 0.01 to 0.02   of another type, axis, scale or zero point
b: int8 per axis 1, scale 0.01 to 0.03
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from onnxq.cli.display import count
from onnxq.diff import OUTPUT, Difference, EdgeView, Kind, PlacementDiff, PlacementView, Scaling
from onnxq.printable import one_line

SCHEMA = 1
"""Version of the JSON form."""

MOST_UNMATCHED = 10
"""How many nodes without a counterpart are listed, of either side. JSON has them all."""

_STYLES = {"-": "red", "+": "green", "~": "yellow"}


def print_diff(found: PlacementDiff, tolerance: float) -> None:
    """Print a comparison, in colour on a terminal; no line is cut or broken to fit it."""
    console = Console(highlight=False, soft_wrap=True)
    for mark, line in diff_lines(found, tolerance):
        console.print(Text(one_line(line), style=_STYLES.get(mark, "")))


def diff_lines(found: PlacementDiff, tolerance: float) -> Iterator[tuple[str, str]]:
    """The lines, each with its mark: "-", "+", "~", or "" for what is no edge."""
    yield "", f"a: {_side(found.a)}"
    yield "", f"b: {_side(found.b)}"
    tensors: dict[tuple[str, str], list[Difference]] = {}
    for difference in found.differences:
        tensors.setdefault((difference.edge.graph, difference.edge.tensor), []).append(difference)
    for (graph, tensor), differences in tensors.items():
        yield "", ""
        yield "", f'tensor "{tensor}"' + (f" in {graph}" if graph else "")
        for difference in differences:
            yield from _edge_lines(difference)
    yield "", ""
    for side, nodes in (("a", found.unmatched_a), ("b", found.unmatched_b)):
        if nodes:
            more = f", and {len(nodes) - MOST_UNMATCHED} more" if len(nodes) > MOST_UNMATCHED else ""
            listed = ", ".join(nodes[:MOST_UNMATCHED])
            yield "", f"not matched: {count(len(nodes), 'node')} of {side}: {listed}{more}"
    if not found.has_common_nodes:
        yield "", "no node of one is in the other, by output or by name: are they of the same model?"
    yield "", _summary(found, tolerance)


def diff_records(found: PlacementDiff, tolerance: float) -> dict[str, Any]:
    """The comparison for programs; docs/cli.md describes the keys."""
    return {
        "schema": SCHEMA,
        "same": found.is_same,
        "scale_tolerance": tolerance,
        "a": _side_record(found.a, found.unmatched_a),
        "b": _side_record(found.b, found.unmatched_b),
        "equal_edges": found.same,
        "differences": [_record(difference) for difference in found.differences],
    }


def _side(view: PlacementView) -> str:
    edges = f" of {len(view.edges)}" if view.is_complete else ""
    return f"{view.source} ({view.what}, {view.quantized}{edges} edges quantized)"


def _edge_lines(found: Difference) -> Iterator[tuple[str, str]]:
    reader = f"{_node(found.edge, found.key.node)} input {found.key.input}"
    if found.key.input == OUTPUT:
        reader = f'output "{found.key.node}" of the graph'
    if found.a is None or found.b is None:
        mark, scaling = ("-", found.a) if found.b is None else ("+", found.b)
        absent = found.kinds[0] in (Kind.UNKNOWN_IN_A, Kind.UNKNOWN_IN_B)
        note = f" ({'b' if found.b is None else 'a'} has no such node)" if absent else ""
        yield mark, f"  {mark} {reader}: {_scaling(scaling)}{note}"
        return
    ratio = found.scale_difference
    note = ""
    if Kind.SCALE in found.kinds and ratio is not None:
        by = f"by {_percent(ratio)}" if np.isfinite(ratio) else "beyond comparison, in number or by NaN or infinity"
        note = f" (scales differ {by})"
    yield "~", f"  ~ {reader}: {_scaling(found.a)}"
    yield "~", f"{'b'.rjust(4 + len(reader))}: {_scaling(found.b)}{note}"


def _node(edge: EdgeView, output: str) -> str:
    return f'{edge.op_type} "{edge.node}"' if edge.node else f'{edge.op_type} yielding "{output}"'


def _scaling(found: Scaling | None) -> str:
    if found is None:
        return "float"
    parts = [found.element_type if found.axis is None else f"{found.element_type} per axis {found.axis}"]
    if found.scale is not None and found.scale.size:
        least, greatest = _limits(found.scale)
        parts.append(f"scale {least:.6g}" if found.scale.size == 1 else f"scale {least:.6g} to {greatest:.6g}")
    if found.zero_point is not None and found.zero_point.size and np.any(found.zero_point.astype(np.float64)):
        least, greatest = _limits(found.zero_point)
        parts.append(f"zero point {least:g}" if least == greatest else f"zero point {least:g} to {greatest:g}")
    return ", ".join(parts)


def _limits(values: Any) -> tuple[float, float]:
    numbers = values.astype(np.float64)
    return float(numbers.min()), float(numbers.max())


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.3g} %"


def _summary(found: PlacementDiff, tolerance: float) -> str:
    kinds = Counter(kind for difference in found.differences for kind in difference.kinds)
    parts = [f"{count(kinds[kind], 'edge')} {kind.value}" for kind in Kind if kinds[kind]]
    same = f"{count(found.same, 'edge')} quantized alike"
    if found.scale_difference is not None:
        same += f", scales within {_percent(found.scale_difference)} (tolerance {_percent(tolerance)})"
    return "; ".join([", ".join(parts) or "no difference", same])


def _side_record(view: PlacementView, unmatched: tuple[str, ...]) -> dict[str, Any]:
    return {
        "source": view.source,
        "what": view.what,
        "edges": len(view.edges),
        "quantized_edges": view.quantized,
        "unmatched_nodes": list(unmatched),
    }


def _record(found: Difference) -> dict[str, Any]:
    ratio = found.scale_difference
    return {
        "graph": found.edge.graph,
        "tensor": found.edge.tensor,
        "node": found.edge.node,
        "op_type": found.edge.op_type,
        "output": found.key.node,
        "input": None if found.key.input == OUTPUT else found.key.input,
        "kinds": [kind.name.lower() for kind in found.kinds],
        "scale_difference": ratio if ratio is not None and np.isfinite(ratio) else None,
        "a": _scaling_record(found.a),
        "b": _scaling_record(found.b),
    }


def _scaling_record(found: Scaling | None) -> dict[str, Any] | None:
    if found is None:
        return None
    scale, zero_point = (
        [] if v is None else v.reshape(-1).astype(float).tolist() for v in (found.scale, found.zero_point)
    )
    return {
        "type": found.element_type,
        "axis": found.axis,
        "scale": [number if np.isfinite(number) else None for number in scale],
        "zero_point": zero_point,
    }
