"""Pieces of the command line's grammar that several commands share.

The grammar imports nothing heavy: what a command needs is imported when it runs, so that help and complaints about
options come at once.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from onnxq.errors import UsageError
from onnxq.policies import POLICIES
from onnxq.quantizers import Settings

_SELECTION_HELP = (
    "Each takes several values: put MODEL before them, or end them with another option. PATTERN is a regular "
    "expression for the whole name of a node; `onnxq explain` prints the names."
)


class Parser(argparse.ArgumentParser):
    """Complains in one line, and takes no abbreviations, which a new option could make ambiguous.

    Args:
        late_epilog: Gives what its help ends with, if that takes importing something heavy.
        settings: Those of argparse.
    """

    def __init__(self, *, late_epilog: Callable[[], str] | None = None, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)
        self._late_epilog = late_epilog

    def format_help(self) -> str:
        """The help, complete."""
        if self._late_epilog is not None:
            self.epilog = self._late_epilog()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing and leaving."""
        raise UsageError(f"{message} (`{self.prog} --help` says more)")

    def option_names(self) -> list[str]:
        """All options, for near misses."""
        return [name for action in self._actions for name in action.option_strings]


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # there is no public name for this


def add_command(
    commands: Commands, name: str, run: str, text: str, more: str = "", epilog: Callable[[], str] | None = None
) -> Parser:
    """Add a command.

    Args:
        commands: What it is added to.
        name: What people type.
        run: "module:function" below `onnxq.cli`; the function takes the options and returns the exit status.
        text: One line for the list of commands.
        more: What only the command's own help says.
        epilog: Gives what that ends with.

    Returns:
        Its parser, to add arguments to.
    """
    description = f"{text[0].upper()}{text[1:]}. {more}".strip()
    parser = commands.add_parser(name, help=text, description=description, late_epilog=epilog)
    parser.set_defaults(run=_later(run), parser=parser)
    return parser


def _later(place: str) -> Callable[[argparse.Namespace], int]:
    """A function that is imported when it is called, after what can be said about the options without it."""
    module, _, function = place.partition(":")

    def run(options: argparse.Namespace) -> int:
        if "onnx_path" in options:
            model_path(options)
        status: int = getattr(import_module(f"onnxq.cli.{module}"), function)(options)
        return status

    return run


def add_model(parser: argparse.ArgumentParser) -> None:
    """The model, as an argument or as an option; `model_path` reads it."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="an ONNX file")
    parser.add_argument("--onnx-path", metavar="MODEL", help="the same, as an option")


def model_path(options: argparse.Namespace) -> Path:
    """The model that was given in one of the two ways.

    Raises:
        UsageError: It wasn't, or in both.
    """
    if (options.model is None) == (options.onnx_path is None):
        raise UsageError("name one model: MODEL, or --onnx_path MODEL (put it before options that take several values)")
    given = options.onnx_path if options.model is None else options.model
    if not given:
        raise UsageError("the name of the model file is empty")
    return Path(given)


def add_selection(parser: argparse.ArgumentParser) -> None:
    """The options that say what to quantize."""
    group = parser.add_argument_group("what to quantize", _SELECTION_HELP)
    for name, value, text in (
        (
            "--op-types-to-quantize",
            "OP",
            "only these op types (default: those that the policy has rules for)",
        ),
        ("--op-types-to-exclude", "OP", "never these op types"),
        ("--nodes-to-quantize", "PATTERN", "only these nodes"),
        ("--nodes-to-exclude", "PATTERN", "never these nodes"),
    ):
        group.add_argument(name, nargs="+", action="extend", metavar=value, help=text)
    add_quantize_outputs(group)


def add_quantize_outputs(parser: argparse._ActionsContainer) -> None:
    """The option `--quantize-outputs`."""
    parser.add_argument(
        "--quantize-outputs",
        action="store_true",
        help="outputs of the model too, where int8 kernels yield them",
    )


def add_direct_io_types(parser: argparse._ActionsContainer) -> None:
    """The option `--direct-io-types`."""
    parser.add_argument(
        "--direct-io-types",
        action="store_true",
        help="inputs and outputs have the type of what stands behind them: integers, or half precision",
    )


def add_target(parser: argparse.ArgumentParser, *, activation_type: bool = True) -> None:
    """The options that say what the result is for.

    Args:
        parser: What they are added to.
        activation_type: Whether the integer type of activations is one of them.
    """
    group = parser.add_argument_group("target")
    group.add_argument(
        "--policy",
        default=POLICIES[0],
        metavar="NAME",
        help="whose kernels the result is for: tensorrt (default), or onnxruntime, which means those of its CPU",
    )
    if activation_type:
        group.add_argument(
            "--activation-type",
            metavar="TYPE",
            help="integer type of activations: int8 (tensorrt), uint8 or int8 (onnxruntime; default: uint8)",
        )


def add_keep_io_types(parser: argparse._ActionsContainer) -> None:
    """The option `--keep-io-types`; None if it isn't given."""
    parser.add_argument(
        "--keep-io-types",
        action=argparse.BooleanOptionalAction,
        help="float32 inputs and outputs stay float32, with Casts at the boundary (default)",
    )


def add_precision_options(parser: argparse.ArgumentParser, op_types: str, nodes: str) -> None:
    """Options that say what stays float32, under the given names."""
    group = parser.add_argument_group("what stays float32")
    add_keep_io_types(group)
    group.add_argument(op_types, nargs="+", action="extend", metavar="OP", help="these op types")
    group.add_argument(
        nodes, nargs="+", action="extend", metavar="PATTERN", help="nodes whose whole name matches a regular expression"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_peer_options(parser: argparse._ActionsContainer) -> None:
    """Options that say how quantizers are run; `peer_settings` reads them."""
    parser.add_argument(
        "--peer-python",
        "--onnxq-peer-python",
        action="append",
        type=_pair,
        default=[],
        metavar="NAME=PATH",
        help="run the quantizer NAME by the Python interpreter PATH, where it is installed; can be repeated",
    )
    parser.add_argument(
        "--time-limit",
        type=seconds,
        metavar="SECONDS",
        help="how long a quantizer that runs in a process of its own may take for one model (default: 300)",
    )


def peer_settings(options: argparse.Namespace) -> Settings:
    """What `add_peer_options` was given."""
    limit = {} if options.time_limit is None else {"time_limit": options.time_limit}
    return Settings(dict(options.peer_python), **limit)


def whole_number(text: str) -> int:
    """A number from 0 on, as the type of an argument."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return int(text)


def seconds(text: str) -> float:
    """A positive number of seconds, as the type of an argument."""
    number = ratio(text)
    if not number:
        raise argparse.ArgumentTypeError("expected more than 0 seconds")
    return number


def _pair(text: str) -> tuple[str, str]:
    name, _, path = text.partition("=")
    if not (name and path):
        raise argparse.ArgumentTypeError(f"{text!r} isn't of the form NAME=PATH")
    return name, path


def ratio(text: str) -> float:
    """A finite number from 0 on, as the type of an argument."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return number
