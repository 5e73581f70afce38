"""Running a foreign program: within a time limit, with all that it starts, and with the last of what it prints.

    this process ---- starts ----> program ---- starts ----> its children
         ^                            |                           |
         +---- one pipe: output ------+---------------------------+

The program leads a process group of its own. Whatever is left of the group when it ends is killed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import IO

from onnxq.errors import PeerError
from onnxq.printable import printable

LINE_LIMIT = 40
"""Lines of a program's output that are kept, the last ones."""

LINE_LENGTH_LIMIT = 300
"""Characters of each of them."""

_BYTES_KEPT = 64 * 1024
_SECONDS_FOR_REST = 1.0
_ANSI_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
        how: In words, to be put behind its name.
        is_success: Whether it ended by itself with exit status 0.
        output: The last lines that it printed, to either stream.
        status: Its exit status, negative for the signal that ended it; None if it was killed because it took too long.
    """

    how: str
    is_success: bool
    output: str
    status: int | None


def run_program(
    arguments: Sequence[str],
    *,
    time_limit: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Ended:
    """Run a program to its end, or kill it.

    Args:
        arguments: The program and its arguments; no shell is involved.
        time_limit: Seconds after which it is killed, with its children, whether it listens to signals or not.
        environment: Its environment variables; None for those of this process.
        folder: Its working directory; None for that of this process.

    Returns:
        How it ended.

    Raises:
        PeerError: It can't be started.
    """
    try:
        process = subprocess.Popen(
            arguments,
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # ValueError: a null character in an argument
        raise PeerError(f"{arguments[0]} can't be started: {error}") from None
    with process:
        tail = _Tail(process.stdout)
        tail.start()
        try:
            status: int | None = process.wait(time_limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _kill_group(process)
        tail.join(_SECONDS_FOR_REST)  # a child that left the group may hold the pipe open for as long as it likes
    return Ended(_in_words(status, time_limit), status == 0, readable(tail.kept), status)


def readable(raw: bytes) -> str:
    """The last lines of an output, of limited number and length, with nothing in them that moves a cursor."""
    text = _ANSI_SEQUENCE.sub("", raw.decode("utf-8", errors="replace"))
    lines = [line.expandtabs().rstrip() for line in text.splitlines()]
    kept = [line for line in lines if line][-LINE_LIMIT:]
    return printable("\n".join(line[:LINE_LENGTH_LIMIT] for line in kept))


class _Tail(Thread):
    """Reads a pipe until it is closed, and keeps the end of it."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        super().__init__(daemon=True)
        self.kept = b""
        self._pipe = pipe

    def run(self) -> None:
        try:
            while self._pipe is not None and (chunk := self._pipe.read(_BYTES_KEPT)):
                self.kept = (self.kept + chunk)[-_BYTES_KEPT:]
        except (OSError, ValueError):
            pass  # closed on our side, because nobody waits for the rest


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # Errors: nothing is left of the group; macOS says it the second way for a group of zombies.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _in_words(status: int | None, time_limit: float) -> str:
    if status is None:
        return f"didn't end within {time_limit:g} s and was killed"
    if status < 0:
        try:
            return f"was killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"was killed by signal {-status}"
    return f"ended with exit status {status}"
