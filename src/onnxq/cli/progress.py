"""Progress of long work: a spinner on a terminal, log lines elsewhere, nothing when asked to be quiet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from onnxq.pipeline import Progress


@contextmanager
def showing_progress(*, quiet: bool) -> Iterator[Progress | None]:
    """A function to tell progress to, for as long as the work lasts.

    Args:
        quiet: Whether to show nothing.
    """
    console = Console(stderr=True, markup=False, highlight=False)
    if quiet:
        yield None
    elif console.is_terminal:
        with console.status("starting") as status:
            yield lambda message: status.update(message)
    else:
        yield lambda message: print(f"onnxq: {message}", file=sys.stderr)
