"""What is in files, before and after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Nothing that is in a folder changes, and nothing is left in it."""
    before = contents(folder)
    yield
    assert contents(folder) == before


@contextmanager
def unchanged_files(files: list[Path]) -> Iterator[None]:
    """These files are the same afterwards."""
    before = [file.read_bytes() for file in files]
    yield
    assert [file.read_bytes() for file in files] == before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
