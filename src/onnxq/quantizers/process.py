"""Running a foreign program: within a time limit, with all that it starts, and with the last of what it prints.

    this process ---- starts ----> program ---- starts ----> its children
         ^                            |                           |
         +---- one pipe: output ------+---------------------------+

The program leads a process group of its own. Whatever is left of the group when it ends is killed, and all of it is
if this process is killed first: a shell that waits for the end of a pipe from here sees to that.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
        tail = Tail(process.stdout)
        with killed_with_us(process.pid):
            try:
                status: int | None = process.wait(time_limit)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                kill_group(process.pid)
                process.wait()
        return ended(status, time_limit, tail)


@contextmanager
def killed_with_us(group: int) -> Iterator[None]:
    """Have a process group killed if this process dies within the block, by whatever signal.

    A shell reads from a pipe: a line says that the block is over, the end of the pipe says that this process is. It
    leads a session of its own, so that a signal to the group of this process doesn't reach it.
    """
    script = 'read -r line || kill -s KILL -- "-$1"'
    guard = subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.communicate(b"\n")


def kill_group(group: int) -> None:
    """Kill all that is left of a process group."""
    # Errors: nothing is left; macOS says it the second way for a group of zombies.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def ended(status: int | None, time_limit: float, tail: Tail) -> Ended:
    """How a program ended that left some output; None for a status is the time limit."""
    return Ended(_in_words(status, time_limit), status == 0, tail.text(), status)


def _in_words(status: int | None, time_limit: float) -> str:
    """How a program ended, by its exit status; a negative one is a signal, and None the time limit."""
    if status is None:
        return f"didn't end within {time_limit:g} s and was killed"
    if status < 0:
        try:
            return f"was killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"was killed by signal {-status}"
    return f"ended with exit status {status}"


def readable(raw: bytes) -> str:
    """The last lines of an output, of limited number and length, with nothing in them that moves a cursor."""
    text = _ANSI_SEQUENCE.sub("", raw.decode("utf-8", errors="replace"))
    lines = [line.expandtabs().rstrip() for line in text.splitlines()]
    kept = [line for line in lines if line][-LINE_LIMIT:]
    return printable("\n".join(line[:LINE_LENGTH_LIMIT] for line in kept))


class Tail:
    """The end of what comes out of a pipe, which a thread reads until it is closed."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        self._kept = b""
        self._pipe = pipe
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self) -> str:
        """The last lines, once the program that writes them has ended."""
        # a child that left the group may hold the pipe open for as long as it likes
        self._thread.join(_SECONDS_FOR_REST)
        return readable(self._kept)

    def _read(self) -> None:
        if self._pipe is None:
            return
        with suppress(OSError, ValueError), self._pipe as pipe:  # closed on our side when nobody waits for the rest
            while chunk := pipe.read(_BYTES_KEPT):
                self._kept = (self._kept + chunk)[-_BYTES_KEPT:]
