"""Tables and plain text in Markdown, for the pages that the benchmarks write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def escaped(text: str, limit: int = 200) -> str:
    """As text that Markdown takes for nothing else."""
    shown = " ".join(text.split())
    shown = shown if len(shown) <= limit else f"{shown[:limit]}..."
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|" else c for c in shown)


def table_head(names: Sequence[str]) -> Iterator[str]:
    yield row(names)
    yield row(["---"] * len(names))


def row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
