"""The grammar of `onnxq corpus add|list|run|strip`."""

from __future__ import annotations

import argparse
from pathlib import Path

from onnxq.cli.arguments import Commands, Parser, add_command, add_json, add_peer_options, add_selection, whole_number
from onnxq.corpus.defaults import DEFAULT_ABOVE, LEAST_ABOVE
from onnxq.corpus.discover import BUILTIN


def add_corpus(subparsers: Commands) -> None:
    """Add the command `corpus` with its own commands."""
    text = "make, list and run cases of a regression corpus; strip weights before sharing"
    parser = subparsers.add_parser("corpus", help=text, description=f"{text[0].upper()}{text[1:]}.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    _add_add(commands)
    _add_list(commands)
    _add_run(commands)
    _add_strip(commands)


def _add_add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "add",
        "corpus_commands:add_command",
        "make a case of a model",
        "The quantizer's result becomes what is expected, so read the case before you trust it.",
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="an ONNX file")
    parser.add_argument("--to", metavar="CORPUS", type=Path, required=True, help="the folder of the corpus")
    parser.add_argument("--name", metavar="FAMILY/CASE", required=True, help="of the new case")
    parser.add_argument("--title", metavar="TEXT", help="what is special about it (default: the name of the file)")
    parser.add_argument("--source", metavar="TEXT", help="where it comes from (default: tools, versions, date)")
    parser.add_argument("--tags", nargs="+", action="extend", default=[], metavar="TAG", help="words to find it by")
    parser.add_argument("--quantizer", metavar="SPEC", help="whose result counts (default: onnxq)")
    parser.add_argument(
        "--calibration-data", metavar="FILE", type=Path, help=".npz or .npy, copied into the case as it is"
    )
    parser.add_argument(
        "--calibration-shapes", metavar="SHAPES", help="settle dims that are open: x:1x3x224x224,y:1x10"
    )
    parser.add_argument("--strip-weights", action="store_true", help="leave the weights out, as `corpus strip` does")
    _add_stripping(parser)
    parser.add_argument("--anonymous", action="store_true", help="say nothing about the file MODEL")
    parser.add_argument("--known-failures", action="store_true", help="checks that fail become known failures")
    parser.add_argument("--refusal", action="store_true", help="the quantizer's error is the right answer")
    add_peer_options(parser)
    add_selection(parser)


def _add_list(commands: Commands) -> None:
    parser = add_command(commands, "list", "corpus_commands:list_command", "list cases with their tags and titles")
    _add_paths(parser)
    parser.add_argument("--tag", action="append", metavar="TAG", help="only cases with this tag; can be repeated")
    _add_pattern(parser)
    add_json(parser)


def _add_run(commands: Commands) -> None:
    parser = add_command(
        commands,
        "run",
        "corpus_commands:run_command",
        "run cases without pytest",
        "Exit status 1 if a check fails, 2 if a case can't be read.",
    )
    _add_paths(parser)
    parser.add_argument(
        "--quantizer", metavar="SPEC", action="append", help="what to test (default: onnxq); can be repeated"
    )
    parser.add_argument("--only", nargs="+", action="extend", metavar="CHECK", help="only these checks")
    parser.add_argument("--tag", action="append", metavar="TAG", help="only cases with this tag; can be repeated")
    _add_pattern(parser)
    add_peer_options(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, no table of the cases that pass")
    add_json(parser)


def _add_strip(commands: Commands) -> None:
    parser = add_command(
        commands,
        "strip",
        "corpus_commands:strip_command",
        "leave the weights out of a model, so that its topology can be shared",
        "Weights become recipes for numbers of the same statistics; doc strings and metadata are dropped. onnxq reads "
        "OUT as it reads any model; with --fill every tool does.",
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="an ONNX file")
    parser.add_argument("-o", "--output", metavar="OUT", type=Path, required=True, help="the file to write")
    parser.add_argument("--fill", action="store_true", help="write the made-up numbers themselves, not the recipes")
    _add_stripping(parser)


def _add_stripping(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--above",
        type=whole_number,
        default=DEFAULT_ABOVE,
        metavar="N",
        help=f"strip weights of more than N elements (default: {DEFAULT_ABOVE}, least: {LEAST_ABOVE})",
    )
    parser.add_argument("--seed", type=whole_number, default=0, help="of the made-up weights (default: 0)")
    parser.add_argument("--rename", action="store_true", help="neutral names for nodes, tensors and symbolic dims")


def _add_paths(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help=f"a corpus, a family or a case (default: {BUILTIN}, what is installed)"
    )


def _add_pattern(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-k", dest="pattern", metavar="PATTERN", help="only cases whose id, family/case, holds this")
