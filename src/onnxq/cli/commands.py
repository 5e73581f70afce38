"""What each command does: call the library, print the result, return the exit status."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from onnxq.calibration import parse_shapes
from onnxq.cli.progress import showing_progress
from onnxq.errors import UsageError
from onnxq.inspection import Inspection, inspect
from onnxq.invariants import check
from onnxq.model_io import load_model
from onnxq.pipeline import QuantizationResult, make_plan, quantize
from onnxq.placement import Placement, SelectionOptions
from onnxq.placement.selection import near_matches


def quantize_command(options: Namespace) -> int:
    """`onnxq quantize`: write the quantized model, then say what became of it."""
    model = _model_path(options)
    output = Path(options.output) if options.output else model.with_suffix(".quant.onnx")
    if output.exists() and model.exists() and output.samefile(model):
        raise UsageError(f"{output}: is the input itself; name another output file")
    shapes = parse_shapes(options.calibration_shapes) if options.calibration_shapes else None
    with showing_progress(quiet=options.quiet) as progress:
        result = quantize(
            model,
            quantize_mode=options.quantize_mode,
            calibration_data=options.calibration_data,
            calibration_method=options.calibration_method,
            calibration_shapes=shapes,
            high_precision_dtype=options.high_precision_dtype,
            op_types_to_quantize=options.op_types_to_quantize,
            op_types_to_exclude=options.op_types_to_exclude,
            nodes_to_quantize=options.nodes_to_quantize,
            nodes_to_exclude=options.nodes_to_exclude,
            on_quantized=options.on_quantized,
            output_path=output,
            seed=options.seed,
            progress=progress,
        )
    for warning in result.warnings:
        print(f"onnxq: warning: {warning}", file=sys.stderr)
    if not options.quiet:
        _plain().print(_summary(result, output))
    return 0


def inspect_command(options: Namespace) -> int:
    """`onnxq inspect`: show a model at a glance."""
    found = inspect(load_model(_model_path(options)))
    if options.json:
        print(json.dumps(found.to_dict(), indent=1))
    else:
        _show_inspection(found)
    return 0


def explain_command(options: Namespace) -> int:
    """`onnxq explain`: the decision of each edge, and why."""
    selection = SelectionOptions(
        options.op_types_to_quantize,
        options.op_types_to_exclude,
        options.nodes_to_quantize,
        options.nodes_to_exclude,
    )
    placement = make_plan(_model_path(options), selection).placement
    if options.node is not None:
        placement = _only_node(placement, options.node)
    _plain().print(placement.to_json() if options.json else placement.to_text(explain=True), end="")
    return 0


def check_command(options: Namespace) -> int:
    """`onnxq check`: all invariants on a pair of models; status 1 if one is violated."""
    violations = check(
        load_model(options.float_model), load_model(options.quantized), policy=options.policy, only=options.only
    )
    if options.json:
        print(json.dumps([asdict(v) for v in violations], indent=1))
    elif violations:
        _plain().print("\n\n".join(map(str, violations)))
        _plain().print(f"\n{len(violations)} violations")
    else:
        _plain().print("no violations")
    return 1 if violations else 0


def _model_path(options: Namespace) -> Path:
    if (options.model is None) == (options.onnx_path is None):
        raise UsageError("name one model: MODEL, or --onnx_path MODEL (put it before options that take several values)")
    return Path(options.model or options.onnx_path)


def _only_node(placement: Placement, name: str) -> Placement:
    chosen = {
        edge: decision
        for edge, decision in placement.items()
        if name in (placement.labels[edge].node, placement.labels[edge].output)
    }
    if not chosen:
        labels = placement.labels.values()
        near = near_matches(name, {label.node for label in labels} | {label.output for label in labels})
        raise UsageError(f'--node: no node with a float input has the name or output "{name}"{near}')
    return Placement(chosen, placement.labels, placement.residuals, placement.scale_groups)


def _summary(result: QuantizationResult, output: Path) -> str:
    nodes = {edge.node for edge in result.placement.quantized}
    residual = sum(r.is_residual for r in result.placement.residuals)
    lines = [
        f"{output}: {len(nodes)} nodes with quantized inputs, "
        f"{len(result.ranges)} calibrated tensors, {residual} residual Adds"
    ]
    lines += [f"changed: {change.where}: {change.what}" for change in result.changes if change.rule != "S8"]
    return "\n".join(lines)


def _show_inspection(found: Inspection) -> None:
    console = _plain()
    console.print(f"opset {found.opset}, {sum(found.nodes.values())} nodes, {found.pairs} DequantizeLinear")
    for kind, values in (("input", found.inputs), ("output", found.outputs)):
        for name, declared in values.items():
            console.print(f"{kind} {name}: {declared}")
    table = Table("op type", "nodes", "with quantized input", box=None, pad_edge=False)
    for op_type, count in found.nodes.items():
        table.add_row(op_type, str(count), str(found.quantized.get(op_type, "")))
    console.print()
    console.print(table)
    if found.adds:
        console.print("\nAdds")
    for add in found.adds:
        skip = f'residual, skip "{add.skip}"' if add.skip is not None else "not residual"
        quantized = ", ".join(add.quantized) or "none"
        console.print(f"{add.node}({', '.join(add.inputs)}): {skip}; quantized inputs: {quantized}")
        console.print(f"    {add.why}")
    for title, lines in (("Preparation would change", found.changes), ("Warnings", found.warnings)):
        if lines:
            console.print(f"\n{title}")
        for line in lines:
            console.print(f"    {line}")


def _plain() -> Console:
    """A console that never reads markup in names, nor breaks lines that a pipe wants whole."""
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=True)
