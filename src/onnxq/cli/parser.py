"""The command line's grammar. argparse, since options that take several values must work as people type them."""

from __future__ import annotations

import argparse

from onnxq import __version__
from onnxq.cli import commands


def build_parser() -> argparse.ArgumentParser:
    """The parser with all commands. Each sets `run`, a function from the options to the exit status."""
    parser = argparse.ArgumentParser(
        prog="onnxq",
        description="Quantize ONNX models to INT8, and tell whether any quantizer broke something.",
        epilog="Exit status: 0 good, 1 violations found, 2 wrong usage or unreadable input. "
        "Options may be written with hyphens or underscores.",
    )
    parser.add_argument("--version", action="version", version=f"onnxq {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_quantize(subparsers)
    _add_inspect(subparsers)
    _add_explain(subparsers)
    _add_check(subparsers)
    return parser


def _add_quantize(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("quantize", help="quantize a float model to INT8")
    parser.set_defaults(run=commands.quantize_command)
    _add_model(parser)
    parser.add_argument("-o", "--output", "--output-path", metavar="FILE", help="default: MODEL.quant.onnx beside it")
    parser.add_argument("--quantize-mode", default="int8", metavar="MODE", help="int8 (default)")
    parser.add_argument(
        "--calibration-data", "--calibration-data-path", metavar="FILE", help=".npz or .npy; samples along axis 0"
    )
    parser.add_argument("--calibration-method", default="max", metavar="METHOD", help="max (default)")
    parser.add_argument(
        "--calibration-shapes", metavar="SHAPES", help="of the made-up sample: input:1x3x224x224,other:1x10"
    )
    parser.add_argument("--high-precision-dtype", default="fp32", metavar="TYPE", help="fp32 (default)")
    _add_selection(parser)
    parser.add_argument(
        "--on-quantized", default="error", metavar="WHAT", help="a model with Q/DQ: error (default) or keep"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the made-up sample (default: 0)")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary; errors and warnings only")


def _add_inspect(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("inspect", help="show interface, Adds, Q/DQ and stale declarations of a model")
    parser.set_defaults(run=commands.inspect_command)
    _add_model(parser)
    _add_json(parser)


def _add_explain(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("explain", help="say for each edge whether it would be quantized, and why")
    parser.set_defaults(run=commands.explain_command)
    _add_model(parser)
    parser.add_argument("--node", metavar="NAME", help="only the inputs of this node (its name or an output)")
    _add_selection(parser)
    _add_json(parser)


def _add_check(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("check", help="check a quantized model, made by any tool, against its float model")
    parser.set_defaults(run=commands.check_command)
    parser.add_argument("float_model", metavar="FLOAT", help="the float model")
    parser.add_argument("quantized", metavar="QUANTIZED", help="what a quantizer made of it")
    parser.add_argument(
        "--policy",
        default="tensorrt",
        metavar="NAME",
        help="fusion rules of the target: tensorrt (default), onnxruntime",
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these invariants")
    _add_json(parser)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="an ONNX file")
    parser.add_argument("--onnx-path", metavar="MODEL", help="the same")


def _add_selection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to quantize (patterns are regular expressions for a node's whole name)")
    group.add_argument("--op-types-to-quantize", nargs="+", metavar="OP", help="only these op types")
    group.add_argument("--op-types-to-exclude", nargs="+", metavar="OP", help="never these op types")
    group.add_argument("--nodes-to-quantize", nargs="+", metavar="PATTERN", help="only these nodes")
    group.add_argument("--nodes-to-exclude", nargs="+", metavar="PATTERN", help="never these nodes")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
