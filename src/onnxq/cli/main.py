"""Entry point: parse, run one command, turn errors into one line and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from onnxq.cli.parser import build_parser
from onnxq.errors import OnnxqError

GOOD, VIOLATED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Words after the program's name; those of the process by default.

    Returns:
        0 if all is good, 1 if violations were found, 2 for wrong usage or unreadable input.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = build_parser().parse_args([_hyphenated(word) for word in words])
    try:
        status: int = options.run(options)
    except OnnxqError as error:
        print(f"onnxq: error: {error}", file=sys.stderr)
        return WRONG_USAGE
    except KeyboardInterrupt:
        print("onnxq: interrupted, nothing was written", file=sys.stderr)
        return INTERRUPTED
    return status


def _hyphenated(word: str) -> str:
    """`--onnx_path=a_b` is `--onnx-path=a_b`: ModelOpt's spelling of an option means the same here."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value
