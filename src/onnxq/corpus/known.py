"""Where a known failure stands in its case file, so that a person who repaired it can delete it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass

from onnxq.corpus.case import Case
from onnxq.corpus.format import KnownFailure


@dataclass(frozen=True)
class KnownFailureBlock:
    """A block `[[known_failure]]` of a case file.

    Attributes:
        line: Number of its first line, from 1.
        text: Its lines.
    """

    line: int
    text: str


def known_failure_block(case: Case, known: KnownFailure) -> KnownFailureBlock | None:
    """The block of the case file that states a known failure.

    Args:
        case: The case.
        known: One of its known failures.

    Returns:
        The block; None if the failures aren't written as blocks.
    """
    lines = case.path.read_text(encoding="utf-8").splitlines()
    starts = [number for number, line in enumerate(lines) if re.match(r"\s*\[", line)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        text = "\n".join(lines[start:end]).rstrip()
        if _stated(text) == _fields(known):
            return KnownFailureBlock(start + 1, text)
    return None


def _stated(text: str) -> dict[str, object] | None:
    """What a piece of a case file states about one known failure; None if it is no such block."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    blocks = found.get("known_failure")
    return (
        {"versions": "", **blocks[0]}
        if isinstance(blocks, list) and blocks and set(found) == {"known_failure"}
        else None
    )


def _fields(known: KnownFailure) -> dict[str, object]:
    return {name: getattr(known, name) for name in known.__struct_fields__}
