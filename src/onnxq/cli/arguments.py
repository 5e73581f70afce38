"""Pieces of the command line's grammar that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from onnxq.errors import UsageError

_SELECTION_HELP = (
    "Each takes several values: put MODEL before them, or end them with another option. PATTERN is a regular "
    "expression for the whole name of a node; `onnxq explain` prints the names."
)


class Parser(argparse.ArgumentParser):
    """Complains in one line, and takes no abbreviations, which a new option could make ambiguous."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing and leaving."""
        raise UsageError(f"{message} (`{self.prog} --help` says more)")

    def option_names(self) -> list[str]:
        """All options, for near misses."""
        return [name for action in self._actions for name in action.option_strings]


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # there is no public name for this


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], int], text: str, more: str = ""
) -> Parser:
    """Add a command.

    Args:
        commands: What it is added to.
        name: What people type.
        run: Takes the options and returns the exit status.
        text: One line for the list of commands.
        more: What only the command's own help says.

    Returns:
        Its parser, to add arguments to.
    """
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}".strip())
    parser.set_defaults(run=run, parser=parser)
    return parser


def add_selection(parser: argparse.ArgumentParser) -> None:
    """The four options that say what to quantize."""
    group = parser.add_argument_group("what to quantize", _SELECTION_HELP)
    for name, value, text in (
        (
            "--op-types-to-quantize",
            "OP",
            "only these op types (default: linear ops, residual Adds, pooling ops and LayerNormalization by rule)",
        ),
        ("--op-types-to-exclude", "OP", "never these op types"),
        ("--nodes-to-quantize", "PATTERN", "only these nodes"),
        ("--nodes-to-exclude", "PATTERN", "never these nodes"),
    ):
        group.add_argument(name, nargs="+", action="extend", metavar=value, help=text)


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def whole_number(text: str) -> int:
    """A number from 0 on, as the type of an argument."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return int(text)
