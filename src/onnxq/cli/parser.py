"""The command line's grammar. argparse, since options that take several values must work as people type them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from difflib import get_close_matches

import onnxq
from onnxq.cli.arguments import (
    Commands,
    Parser,
    add_command,
    add_direct_io_types,
    add_json,
    add_keep_io_types,
    add_model,
    add_precision_options,
    add_quantize_outputs,
    add_selection,
    add_target,
    ratio,
)
from onnxq.cli.calibrate_parser import add_calibrate, add_calibration, add_ranges
from onnxq.cli.corpus_parser import add_corpus
from onnxq.cli.fuzz_parser import add_fuzz
from onnxq.cli.reduce_parser import add_reduce


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line.

    Args:
        words: What follows the program's name. Options may be spelled with hyphens or underscores.

    Returns:
        The options; `run` is the function that takes them and returns the exit status.

    Raises:
        UsageError: Naming the word that is wrong.
    """
    options, unknown = build_parser().parse_known_args([_hyphenated(word) for word in words])
    if unknown:
        parser: Parser = options.parser
        near = get_close_matches(unknown[0].partition("=")[0], parser.option_names(), n=1)
        parser.error(f"unknown argument {unknown[0]!r}" + (f"; did you mean {near[0]}?" if near else ""))
    return options


def build_parser() -> argparse.ArgumentParser:
    """The parser with all commands. Each sets `run`, a function from the options to the exit status."""
    parser = Parser(
        prog="onnxq",
        description="Quantize ONNX models to INT8, and tell whether any quantizer broke something.",
        epilog="Exit status: 0 good, 1 violations found, 2 wrong usage or unreadable input. "
        "Options may be spelled with hyphens or underscores. `onnxq COMMAND --help` says more about a command.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_quantize(subparsers)
    add_calibrate(subparsers)
    add_ranges(subparsers)
    _add_convert(subparsers)
    _add_inspect(subparsers)
    _add_explain(subparsers)
    _add_check(subparsers)
    _add_diff(subparsers)
    add_corpus(subparsers)
    add_fuzz(subparsers)
    add_reduce(subparsers)
    return parser


def _add_quantize(subparsers: Commands) -> None:
    parser = add_command(
        subparsers,
        "quantize",
        "commands:quantize_command",
        "quantize a float model to INT8",
        "Q/DQ pairs are written where the target's kernels want them. MODEL itself is never changed.",
    )
    add_model(parser)
    parser.add_argument(
        "-o", "--output", "--output-path", metavar="FILE", help="the file to write (default: MODEL.quant.onnx)"
    )
    parser.add_argument("--quantize-mode", default="int8", metavar="MODE", help="int8 (default)")
    parser.add_argument(
        "--high-precision-dtype",
        metavar="TYPE",
        help="of what isn't quantized: fp16 (default), bf16, or fp32, which leaves it as it is (onnxruntime: fp32)",
    )
    parser.add_argument(
        "--on-quantized",
        default="error",
        metavar="WHAT",
        help="what to do with a model that holds Q/DQ: error (default) refuses it, keep keeps its pairs and adds none",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary; errors and warnings only")
    calibration = add_calibration(parser, "--calibration-data", "--calibration-data-path")
    calibration.add_argument("--ranges", metavar="FILE", help="from `onnxq calibrate`, in place of data")
    calibration.add_argument(
        "--calibration-cache-path", metavar="FILE", help="a TensorRT calibration cache, in place of data"
    )
    add_target(parser)
    add_selection(parser)
    add_precision_options(parser, "--op-types-to-exclude-fp16", "--nodes-to-exclude-fp16")
    form = parser.add_argument_group("form of the result")
    add_direct_io_types(form)
    form.add_argument(
        "--dq-only",
        action="store_true",
        help="store weights as integers with only a DequantizeLinear, in a fourth of their size",
    )


def _add_convert(subparsers: Commands) -> None:
    parser = add_command(
        subparsers,
        "convert",
        "convert_command:convert_command",
        "convert a model to half precision, without quantizing it",
        "What an operator, its constants or its contract don't allow stays float32, with Casts around it. MODEL itself "
        "is never changed.",
    )
    add_model(parser)
    parser.add_argument(
        "-o", "--output", "--output-path", metavar="FILE", help="the file to write (default: MODEL.PRECISION.onnx)"
    )
    parser.add_argument(
        "--precision", "--low-precision-type", default="fp16", metavar="TYPE", help="fp16 (default) or bf16"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no summary; errors only")
    add_precision_options(parser, "--op-types-to-exclude", "--nodes-to-exclude")


def _add_inspect(subparsers: Commands) -> None:
    parser = add_command(
        subparsers,
        "inspect",
        "inspect_command:inspect_command",
        "show what a model holds: interface, op types, Q/DQ, Adds, stale declarations",
        "MODEL may be float or quantized, by any tool.",
    )
    add_model(parser)
    add_json(parser)
    add_target(parser)


def _add_explain(subparsers: Commands) -> None:
    parser = add_command(
        subparsers,
        "explain",
        "explain_command:explain_command",
        "say for each edge of a float model whether it would be quantized, and why",
        "Nothing is calibrated or written. Below each node stand its float inputs: tensor, decision, rule, what the "
        "rule says, and what it saw.",
    )
    add_model(parser)
    for name, what in (("--node", "nodes of this name or first output"), ("--tensor", "inputs that read this tensor")):
        parser.add_argument(name, metavar="NAME", help=f"only {what}; or a regular expression for the whole of it")
    add_json(parser)
    add_target(parser)
    add_selection(parser)


def _add_check(subparsers: Commands) -> None:
    parser = add_command(
        subparsers,
        "check",
        "commands:check_command",
        "check a quantized model, made by any tool, against its float model",
        "Exit status 1 if an invariant is violated.",
        epilog=_invariants,
    )
    parser.add_argument("float_model", metavar="FLOAT", help="the float model")
    parser.add_argument("quantized", metavar="QUANTIZED", help="what a quantizer made of it")
    parser.add_argument(
        "--policy",
        default="tensorrt",
        metavar="NAME",
        help="fusion rules of the target: tensorrt (default), onnxruntime",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        action="extend",
        metavar="NAME",
        help="only these invariants",
    )
    asked = parser.add_argument_group("what the quantizer was asked for")
    add_quantize_outputs(asked)
    add_keep_io_types(asked)
    add_direct_io_types(asked)
    add_json(parser)


def _invariants() -> str:
    from onnxq.invariants import INVARIANTS

    return f"Invariants: {', '.join(INVARIANTS)}."


def _add_diff(subparsers: Commands) -> None:
    parser = add_command(
        subparsers,
        "diff",
        "diff_command:diff_command",
        "compare which tensors two models, or two placements, have quantized, and how",
        "A and B are models, float or quantized by any tool, outputs of `onnxq explain --json`, or placement.txt of a "
        "corpus. Nodes are matched by the tensors that they yield, then by their names. Exit status 1 if A and B "
        "differ.",
    )
    parser.add_argument("a", metavar="A", help="a model or a placement")
    parser.add_argument("b", metavar="B", help="another one")
    parser.add_argument(
        "--float", dest="float_model", metavar="MODEL", help="the float model that both are of, if one renamed tensors"
    )
    parser.add_argument(
        "--scale-tolerance",
        type=ratio,
        default=0.05,
        metavar="RATIO",
        help="scales may differ by this part of the larger one (default: 0.05)",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing; the exit status says it")
    add_json(parser)


class _Version(argparse.Action):
    """Prints the version. It is looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"onnxq {onnxq.__version__}")
        parser.exit()


def _hyphenated(word: str) -> str:
    """`--onnx_path=a_b` is `--onnx-path=a_b`: ModelOpt's spelling of an option means the same here."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value
