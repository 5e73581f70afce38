"""The command line's grammar. argparse, since options that take several values must work as people type them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from onnxq import __version__
from onnxq.cli import commands
from onnxq.errors import UsageError

_SELECTION_HELP = (
    "Each takes several values: put MODEL before them, or end them with another option. PATTERN is a regular "
    "expression for the whole name of a node; `onnxq explain` prints the names."
)


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
        parser: _Parser = options.parser
        near = get_close_matches(unknown[0].partition("=")[0], parser.option_names(), n=1)
        parser.error(f"unknown argument {unknown[0]!r}" + (f"; did you mean {near[0]}?" if near else ""))
    return options


class _Parser(argparse.ArgumentParser):
    """Complains in one line, and takes no abbreviations, which a new option could make ambiguous."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (`{self.prog} --help` says more)")

    def option_names(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings]


def build_parser() -> argparse.ArgumentParser:
    """The parser with all commands. Each sets `run`, a function from the options to the exit status."""
    parser = _Parser(
        prog="onnxq",
        description="Quantize ONNX models to INT8, and tell whether any quantizer broke something.",
        epilog="Exit status: 0 good, 1 violations found, 2 wrong usage or unreadable input. "
        "Options may be spelled with hyphens or underscores. `onnxq COMMAND --help` says more about a command.",
    )
    parser.add_argument("--version", action="version", version=f"onnxq {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_quantize(subparsers)
    _add_inspect(subparsers)
    _add_explain(subparsers)
    _add_check(subparsers)
    return parser


_Commands = argparse._SubParsersAction  # argparse has no public name for what add_subparsers returns


def _add_command(
    subparsers: _Commands[_Parser], name: str, run: Callable[[argparse.Namespace], int], text: str, more: str = ""
) -> _Parser:
    parser = subparsers.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}".strip())
    parser.set_defaults(run=run, parser=parser)
    return parser


def _add_quantize(subparsers: _Commands[_Parser]) -> None:
    parser = _add_command(
        subparsers,
        "quantize",
        commands.quantize_command,
        "quantize a float model to INT8",
        "Q/DQ pairs are written where TensorRT's fusion rules want them. MODEL itself is never changed.",
    )
    _add_model(parser)
    parser.add_argument(
        "-o", "--output", "--output-path", metavar="FILE", help="the file to write (default: MODEL.quant.onnx)"
    )
    parser.add_argument("--quantize-mode", default="int8", metavar="MODE", help="int8 (default)")
    parser.add_argument(
        "--high-precision-dtype", default="fp32", metavar="TYPE", help="of what isn't quantized: fp32 (default)"
    )
    parser.add_argument(
        "--on-quantized",
        default="error",
        metavar="WHAT",
        help="what to do with a model that holds Q/DQ: error (default) refuses it, keep writes it prepared",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no summary; errors and warnings only")
    group = parser.add_argument_group("calibration")
    group.add_argument(
        "--calibration-data",
        "--calibration-data-path",
        metavar="FILE",
        help=".npz with an array for each input, or .npy for the only one; samples along axis 0 (default: one random "
        "sample, fit for tests only)",
    )
    group.add_argument("--calibration-method", default="max", metavar="METHOD", help="max (default)")
    group.add_argument(
        "--calibration-shapes", metavar="SHAPES", help="settle dims that the model leaves open: x:1x3x224x224,y:1x10"
    )
    group.add_argument("--seed", type=_seed, default=0, help="of the random sample (default: 0)")
    _add_selection(parser)


def _add_inspect(subparsers: _Commands[_Parser]) -> None:
    parser = _add_command(
        subparsers,
        "inspect",
        commands.inspect_command,
        "show what a model holds: interface, op types, Q/DQ, Adds, stale declarations",
        "MODEL may be float or quantized, by any tool.",
    )
    _add_model(parser)
    _add_json(parser)


def _add_explain(subparsers: _Commands[_Parser]) -> None:
    parser = _add_command(
        subparsers,
        "explain",
        commands.explain_command,
        "say for each edge of a float model whether it would be quantized, and why",
        "Nothing is calibrated or written. Each line has: node, input, tensor, decision, rule, and what the rule saw.",
    )
    _add_model(parser)
    parser.add_argument("--node", metavar="NAME", help="only the inputs of this node (its name or an output of it)")
    _add_json(parser)
    _add_selection(parser)


def _add_check(subparsers: _Commands[_Parser]) -> None:
    parser = _add_command(
        subparsers,
        "check",
        commands.check_command,
        "check a quantized model, made by any tool, against its float model",
        "Exit status 1 if an invariant is violated.",
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
        help=f"only these invariants, of: {', '.join(commands.INVARIANTS)}",
    )
    _add_json(parser)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", metavar="MODEL", help="an ONNX file")
    parser.add_argument("--onnx-path", metavar="MODEL", help="the same, as an option")


def _add_selection(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to quantize", _SELECTION_HELP)
    for name, value, text in (
        (
            "--op-types-to-quantize",
            "OP",
            "only these op types (default: Conv ConvTranspose Gemm MatMul, residual Adds)",
        ),
        ("--op-types-to-exclude", "OP", "never these op types"),
        ("--nodes-to-quantize", "PATTERN", "only these nodes"),
        ("--nodes-to-exclude", "PATTERN", "never these nodes"),
    ):
        group.add_argument(name, nargs="+", action="extend", metavar=value, help=text)


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return int(text)


def _hyphenated(word: str) -> str:
    """`--onnx_path=a_b` is `--onnx-path=a_b`: ModelOpt's spelling of an option means the same here."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value
