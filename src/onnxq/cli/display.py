"""What the commands print, as text: columns are aligned, and no line is cut or broken to fit a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from onnxq.inspection import AddReport, Inspection
from onnxq.invariants import Violation
from onnxq.model_io import model_files
from onnxq.pipeline import QuantizationResult
from onnxq.placement import Placement
from onnxq.placement.ops import LINEAR
from onnxq.printable import printable

MOST_CHANGES = 10
"""How many corrected declarations the summary of a quantization lists."""


def show(text: str) -> None:
    """Print text that may hold names from models: what a terminal would obey is escaped."""
    print(printable(text))


def summary_text(result: QuantizationResult, output: Path) -> str:
    """What a quantization made of a model, in a few lines."""
    placement = result.placement
    op_types = {edge.node: label.op_type for edge, label in placement.labels.items()}
    total, quantized = Counter(op_types.values()), Counter(op_types[n] for n in {e.node for e in placement.quantized})
    parts = [
        f"{quantized[op_type]} of {total[op_type]} {op_type}"
        if op_type in LINEAR
        else f"{quantized[op_type]} {op_type}"
        for op_type in sorted(total, key=lambda op_type: (-quantized[op_type], op_type))
        if quantized[op_type] or op_type in LINEAR
    ]
    residual = sum(r.is_residual for r in placement.residuals)
    found = f"{count(residual, 'residual Add')}, {count(len(result.ranges), 'calibrated tensor')}"
    lines = [
        written(output),
        f"quantized: {', '.join(parts) or 'nothing'} ({found})",
    ]
    changes = [f"changed: {change.where}: {change.what}" for change in result.changes if change.rule != "S8"]
    lines += changes[:MOST_CHANGES]
    if len(changes) > MOST_CHANGES:
        lines.append(f"changed: and {len(changes) - MOST_CHANGES} more, `onnxq inspect` on the float model lists them")
    return "\n".join(lines)


def inspection_text(found: Inspection, path: Path) -> str:
    """A model at a glance."""
    made_by = f", made by {found.producer}" if found.producer else ""
    domains = "".join(f", {domain} {version}" for domain, version in found.domains.items())
    scales = [f"{number} {what}" for what, number in found.scales.items()]
    head = [
        f"{path}",
        f"opset {found.opset}{domains}, IR {found.ir_version}{made_by}",
        f"{count(sum(found.nodes.values()), 'node')}, {found.stored:,} stored values",
        f"quantized: {', '.join(scales)}" if scales else "quantized: nothing, this is a float model",
    ]
    interface = [(kind, *item) for kind, values in _interface(found) for item in values.items()]
    blocks = [head, aligned(interface), _op_types(found), _adds(found)]
    named = (f"{count(found.unnamed, 'node')} without a name of their own: named",) if found.unnamed else ()
    for title, lines in (("Preparation would change:", (*named, *found.changes)), ("Warnings:", found.warnings)):
        blocks.append([title, *(f"    {line}" for line in lines)] if lines else [])
    return "\n\n".join("\n".join(block) for block in blocks if block)


def explanation_text(placement: Placement) -> str:
    """The decision of every edge, then what the rules that decided say."""
    rules = Counter(decision.reason.rule for decision in placement.values())
    legend = [(rule.name, rule.value) for rule in sorted(rules, key=lambda rule: rule.name)]
    total = f"{len(placement.quantized)} of {count(len(placement), 'float edge')} quantized"
    return "\n".join([placement.to_text(explain=True), total, *aligned(legend, indent=4)])


def violations_text(violations: Sequence[Violation], *, checked: int) -> str:
    """What is violated, or that nothing is."""
    invariants = count(checked, "invariant")
    if not violations:
        return f"no violations of {invariants}"
    broken = len({violation.invariant for violation in violations})
    total = f"{count(len(violations), 'violation')}, of {broken} out of {invariants}"
    return "\n\n".join([*map(str, violations), total])


def _interface(found: Inspection) -> Iterable[tuple[str, Mapping[str, str]]]:
    return ("input", found.inputs), ("output", found.outputs)


def _op_types(found: Inspection) -> list[str]:
    header = ("op type", "nodes", "quantized", "onnxq would")
    columns = (found.nodes, found.quantized, found.planned)
    rows = [(op_type, *(column.get(op_type, 0) for column in columns)) for op_type in found.nodes]
    total = ("all", *(sum(column.values()) for column in columns))
    return aligned([header, *([str(cell or "") for cell in row] for row in [*rows, total])], right=True)


def _adds(found: Inspection) -> list[str]:
    """The Adds of two branches, each with what the rules make of it; those of a bias are only counted."""
    rows = aligned([_add_row(add) for add in found.adds], indent=4)
    lines = [line for row, add in zip(rows, found.adds, strict=True) for line in (row, f"        {add.why}")]
    residual = sum(add.skip is not None for add in found.adds)
    title = f"{count(len(found.adds), 'Add')} of two computed tensors, {residual} of them residual"
    if found.constant_adds:
        title += f" ({found.constant_adds} more add a constant)"
    return [title + ":", *lines] if lines else []


def _add_row(add: AddReport) -> tuple[str, ...]:
    skip = "not residual" if add.skip is None else f"skip {add.skip}"
    return (add.node, " + ".join(add.inputs), skip, f"quantized: {', '.join(add.quantized) or 'none'}")


def aligned(rows: Sequence[Sequence[str]], *, indent: int = 0, right: bool = False) -> list[str]:
    """Rows of cells as lines; `right` aligns all columns but the first to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if right and n else c.ljust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append(" " * indent + "  ".join(cells).rstrip())
    return lines


def count(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def written(output: Path) -> str:
    """The files of a model that was written, and their size."""
    files = model_files(output)
    return f"wrote {', '.join(map(str, files))} ({size(sum(file.stat().st_size for file in files))})"


def size(number: int) -> str:
    """Bytes for a person."""
    return f"{number / 1e6:.1f} MB" if number >= 100_000 else f"{number / 1e3:.1f} kB"
