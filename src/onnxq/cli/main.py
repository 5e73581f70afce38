"""Entry point: parse, run one command, turn errors into one line and an exit status."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from onnxq.cli.parser import parse
from onnxq.errors import OnnxqError
from onnxq.printable import one_line

WRONG_USAGE, INTERRUPTED, BROKEN_PIPE = 2, 130, 141
"""The last two are what a shell reports for a process that SIGINT or SIGPIPE ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Words after the program's name; those of the process by default.

    Returns:
        0 if all is good, 1 if violations were found, 2 for wrong usage or unreadable input.
    """
    _escape_unprintable()
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        status: int = options.run(options)
        sys.stdout.flush()
    except OnnxqError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        print("onnxq: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return BROKEN_PIPE
    except MemoryError as error:
        return _fail(f"not enough memory: {error}" if str(error) else "not enough memory")
    except OSError as error:  # the disk is full, a name is too long, ...
        _drop_output()
        return _fail(f"{error.filename or 'output'}: {error.strerror or error}")
    return status


def _fail(message: str) -> int:
    """Say what is wrong in one line, even where a name in the message holds line breaks."""
    print(f"onnxq: error: {one_line(message)}", file=sys.stderr)
    return WRONG_USAGE


def _escape_unprintable() -> None:
    """Names in a model may hold what the terminal's encoding can't say; that is no reason to fail."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Nobody reads standard output: keep Python from writing what is left of it, and failing again, at its exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:  # standard output is no file here, for instance under a test's capture
        return
