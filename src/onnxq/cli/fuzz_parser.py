"""The grammar of `onnxq fuzz`."""

from __future__ import annotations

from pathlib import Path

from onnxq.cli.arguments import Commands, add_command, add_json, add_peer_options, seconds, whole_number

DEFAULT_SECONDS = 60.0


def add_fuzz(subparsers: Commands) -> None:
    """Add `onnxq fuzz` to the parser."""
    parser = add_command(
        subparsers,
        "fuzz",
        "fuzz_command:fuzz_command",
        "search for models that a quantizer gets wrong, or hold one model against all relations",
        "Without MODEL, models are drawn, and of each kind of fault the smallest one is shown. With MODEL, an ONNX "
        "file or the case.toml of a corpus, the relations are checked on that. Exit status 1 if something is wrong. "
        "Ctrl-C ends a search with what it has found.",
        epilog=_names,
    )
    parser.add_argument("model", nargs="?", type=Path, metavar="MODEL", help="check this one instead of searching")
    parser.add_argument("--quantizer", metavar="SPEC", help="what to test (default: onnxq)")
    parser.add_argument("--relations", nargs="+", action="extend", metavar="NAME", help="only these (default: all)")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, and nothing if nothing is found")
    add_json(parser)
    search = parser.add_argument_group("search")
    search.add_argument(
        "--time", type=seconds, metavar="SECONDS", help=f"when it ends (default: {DEFAULT_SECONDS:g}, without --models)"
    )
    search.add_argument("--models", type=whole_number, metavar="N", help="end it after so many models")
    search.add_argument("--findings", type=whole_number, metavar="N", help="end it after so many kinds of faults")
    search.add_argument(
        "--strategies", nargs="+", action="extend", metavar="NAME", help="what models are drawn from (default: all)"
    )
    search.add_argument("--seed", type=whole_number, default=0, metavar="N", help="other models (default: 0)")
    search.add_argument(
        "--save-failures", type=Path, metavar="DIR", help="write each finding as a case of the corpus DIR"
    )
    search.add_argument(
        "--database",
        type=Path,
        metavar="DIR",
        help="where hypothesis keeps what failed, to try that first the next time",
    )
    add_peer_options(parser)


def _names() -> str:
    from onnxq.fuzz import RELATIONS, SOURCES

    names = ", ".join(relation.name for relation in RELATIONS)
    return f"Relations: {names}. Strategies: {', '.join(SOURCES)}."
