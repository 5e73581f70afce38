"""`onnxq inspect`: a model at a glance."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import asdict, dataclass
from pathlib import Path

from onnxq.cli.arguments import model_path
from onnxq.cli.display import aligned, count, naming, show, size
from onnxq.inspection import AddReport, Inspection, OpTypeReport, Tally, inspect
from onnxq.model_io import load_model, model_files
from onnxq.printable import one_line


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files that a model consists of.

    Attributes:
        path: Its own.
        external: Those with its external data.
        bytes: How big they are together.
    """

    path: str
    external: tuple[str, ...]
    bytes: int


def inspect_command(options: Namespace) -> int:
    """`onnxq inspect`: show a model at a glance."""
    path = model_path(options)
    with naming(path):
        found = inspect(load_model(path), policy=options.policy, activation_type=options.activation_type)
    files = _files(path)
    if options.json:
        print(json.dumps({"file": asdict(files), **asdict(found)}, indent=1))
    else:
        show(inspection_text(found, files))
    return 0


def inspection_text(found: Inspection, files: ModelFiles) -> str:
    """The inspection for people."""
    interface = [
        (kind, one_line(name), one_line(type_))
        for kind, values in (("input", found.inputs), ("output", found.outputs))
        for name, type_ in values.items()
    ]
    named = (f"{count(found.unnamed, 'node')} without a name of their own: named",) if found.unnamed else ()
    blocks = [_head(found, files), aligned(interface), _op_types(found), _adds(found)]
    for title, lines in (("Preparation would change:", (*named, *found.changes)), ("Warnings:", found.warnings)):
        blocks.append([title, *(f"    {one_line(line)}" for line in lines)] if lines else [])
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _files(path: Path) -> ModelFiles:
    files = model_files(path)
    return ModelFiles(str(path), tuple(map(str, files[1:])), sum(file.stat().st_size for file in files))


def _head(found: Inspection, files: ModelFiles) -> list[str]:
    made_by = f", made by {found.producer}" if found.producer else ""
    domains = "".join(f", {domain} {version}" for domain, version in found.domains.items())
    external = f", weights in {', '.join(files.external)}" if files.external else ""
    nodes = count(sum(report.nodes for report in found.op_types.values()), "node")
    inside = f", {found.body_nodes} of them in {_bodies(found.bodies)}" if found.bodies else ""
    scales = ", ".join(f"{number} {what}" for what, number in found.scales.items())
    planned = ", ".join(f"{number} {what}" for what, number in found.planned_scales.items())
    lines = [
        files.path,
        f"{size(files.bytes)}{external}",
        f"opset {found.opset}{domains}, IR {found.ir_version}{made_by}",
        f"{nodes}{inside}, {found.stored:,} stored values",
    ]
    if found.is_quantized:
        lines.append(f"quantized: {scales or 'nothing that a node of it reads'}")
    else:
        lines.append(f"quantized: nothing, this is a float model; onnxq quantize would: {planned or 'nothing'}")
    return [one_line(line) for line in lines]


def _bodies(number: int) -> str:
    return "1 body" if number == 1 else f"{number} bodies"


def _op_types(found: Inspection) -> list[str]:
    """A row for each op type: what is there, or for a float model what would be."""
    header = ["op type", "nodes", "quantized", "partly", "float"]
    if found.is_quantized:
        header.append("onnxq would")
    rows = [[one_line(op_type), *_cells(report, found)] for op_type, report in found.op_types.items()]
    totals = ["all", *(sum(column) for column in zip(*(row[1:] for row in rows), strict=True))]
    table = aligned([header, *([str(cell or "") for cell in row] for row in [*rows, totals])], right=True)
    return table if found.is_quantized else ["What onnxq quantize would make of it:", *table]


def _cells(report: OpTypeReport, found: Inspection) -> tuple[int, ...]:
    planned = report.planned.quantized + report.planned.partly
    tally: Tally = report.found if found.is_quantized else report.planned
    cells = (report.nodes, tally.quantized, tally.partly, tally.floats)
    return (*cells, planned) if found.is_quantized else cells


def _adds(found: Inspection) -> list[str]:
    """The Adds of two branches, each with what the rules make of it; those of a bias are only counted."""
    if not found.adds:
        return []
    residual = [add for add in found.adds if add.skip is not None]
    title = f"{count(len(found.adds), 'Add')} of two computed tensors, {len(residual)} of them residual"
    if found.constant_adds:
        title += f" ({found.constant_adds} more add a constant)"
    inputs = [add.quantized if found.is_quantized else add.planned for add in residual]
    numbers = ", ".join(f"{sum(len(i) == n for i in inputs)} with {what}" for n, what in enumerate(_NUMBERS))
    verb = "have" if found.is_quantized else "would have"
    summary = [f"    the residual ones {verb} quantized inputs: {numbers}"] if residual else []
    rows = aligned([_add_row(add, found) for add in found.adds], indent=4)
    lines = [line for row, add in zip(rows, found.adds, strict=True) for line in (row, f"        {one_line(add.why)}")]
    return [f"{title}:", *summary, *lines]


_NUMBERS = ("none", "exactly one", "both")


def _add_row(add: AddReport, found: Inspection) -> tuple[str, ...]:
    skip = "not residual" if add.skip is None else f"skip {add.skip}"
    inputs = add.quantized if found.is_quantized else add.planned
    cells = (add.node, " + ".join(add.inputs), skip, f"quantized: {', '.join(inputs) or 'none'}")
    return tuple(map(one_line, cells))
