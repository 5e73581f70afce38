"""Names from models and cases, made fit for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Replace control characters by their escapes, so that no name moves the cursor or hides what follows it.

    Args:
        text: Anything; line breaks are kept, since messages have several lines.

    Returns:
        The text, with printable characters and line breaks only.
    """
    return "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)


def one_line(text: str) -> str:
    """The same with line breaks escaped too."""
    return printable(text).replace("\n", "\\n")


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "replace").decode("ascii")
