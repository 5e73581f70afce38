"""Progress of long work: a spinner on a terminal, log lines elsewhere, nothing when asked to be quiet."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from onnxq.pipeline import Progress

SECONDS_BETWEEN_LINES = 10.0
"""How often a message that differs from the one before only in its numbers gets a line of its own."""


@contextmanager
def showing_progress(*, quiet: bool) -> Iterator[Progress | None]:
    """A function to tell progress to, for as long as the work lasts.

    Args:
        quiet: Whether to show nothing.
    """
    console = Console(stderr=True)
    if quiet:
        yield None
    elif console.is_terminal:
        with console.status("starting") as status:
            yield lambda message: status.update(Text(message))
    else:
        yield _LogLines().tell


class _LogLines:
    """One line for each step, and now and then one that says how far it is: logs of long runs stay short."""

    def __init__(self) -> None:
        self._step = ""
        self._printed = 0.0

    def tell(self, message: str) -> None:
        step, now = re.sub(r"\d+", "", message), time.monotonic()
        if step != self._step or now - self._printed >= SECONDS_BETWEEN_LINES:
            print(f"onnxq: {message}", file=sys.stderr)
            self._step, self._printed = step, now
