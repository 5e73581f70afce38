"""`onnxq convert`: half precision without quantization."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections import Counter
from pathlib import Path

from onnxq.cli.arguments import Commands, add_command
from onnxq.cli.display import count, show, written
from onnxq.convert import Lowered, convert
from onnxq.errors import UsageError


def add_convert(subparsers: Commands) -> None:
    """Add the command to the parser."""
    parser = add_command(
        subparsers,
        "convert",
        convert_command,
        "convert a model to half precision, without quantizing it",
        "What an operator, its constants or its contract don't allow stays float32, with Casts around it. MODEL itself "
        "is never changed.",
    )
    parser.add_argument("model", nargs="?", metavar="MODEL", help="an ONNX file")
    parser.add_argument("--onnx-path", metavar="MODEL", help="the same, as an option")
    parser.add_argument(
        "-o", "--output", "--output-path", metavar="FILE", help="the file to write (default: MODEL.PRECISION.onnx)"
    )
    parser.add_argument(
        "--precision", "--low-precision-type", default="fp16", metavar="TYPE", help="fp16 (default) or bf16"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no summary; errors only")
    add_precision_options(parser, "--op-types-to-exclude", "--nodes-to-exclude")


def add_precision_options(parser: ArgumentParser, op_types: str, nodes: str) -> None:
    """Options that say what stays float32, under the given names."""
    group = parser.add_argument_group("what stays float32")
    group.add_argument(
        "--keep-io-types",
        action=BooleanOptionalAction,
        default=True,
        help="float32 inputs and outputs stay float32, with Casts at the boundary (default)",
    )
    group.add_argument(op_types, nargs="+", action="extend", metavar="OP", help="these op types")
    group.add_argument(
        nodes, nargs="+", action="extend", metavar="PATTERN", help="nodes whose whole name matches a regular expression"
    )


def convert_command(options: Namespace) -> int:
    """`onnxq convert`: write the converted model, then say what stayed float32."""
    if (options.model is None) == (options.onnx_path is None):
        raise UsageError("name one model: MODEL, or --onnx_path MODEL (before options that take several values)")
    model = Path(options.model or options.onnx_path)
    stem = model.name.removesuffix(".onnx")
    output = Path(options.output) if options.output else model.with_name(f"{stem}.{options.precision}.onnx")
    lowered = convert(
        model,
        keep_io_types=options.keep_io_types,
        low_precision_type=options.precision,
        op_types_to_exclude=options.op_types_to_exclude,
        nodes_to_exclude=options.nodes_to_exclude,
        output_path=output,
    )
    if not options.quiet:
        show(kept_text(lowered, output))
    return 0


def kept_text(lowered: Lowered, output: Path) -> str:
    """What a conversion made of a model, in a few lines."""
    lines = [written(output)]
    reasons = Counter(kept.why for kept in lowered.kept)
    lines += [f"float32: {count(number, 'node')}: {why.value}" for why, number in reasons.items()]
    return "\n".join(lines)
