"""Finds cases in the file system. Needs the standard library only: pytest calls it while it starts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from onnxq.errors import CorpusError

CASE_FILE = "case.toml"
"""Name of the file that makes a folder a case."""

BUILTIN = "builtin"
"""What stands for the corpus that comes with onnxq, wherever a path is wanted."""


def corpus_path(spec: str, base: Path) -> Path:
    """The absolute path of a corpus, links kept as they are.

    Args:
        spec: A path of a folder or a case file, or `BUILTIN`.
        base: What a relative path starts from.

    Returns:
        The path.

    Raises:
        CorpusError: There is no such path.
    """
    if spec == BUILTIN:
        return builtin_corpus()
    path = Path(os.path.abspath(base / spec))  # noqa: PTH100 (resolve() would follow links, and pytest doesn't)
    if not path.exists():
        raise CorpusError(f"corpus {path}: no such path; give a folder of cases, a {CASE_FILE}, or {BUILTIN}")
    return path


def builtin_corpus() -> Path:
    """The corpus that comes with onnxq: package data of the wheel, or the repository's in an editable install.

    Raises:
        CorpusError: This installation has none.
    """
    package = Path(str(files("onnxq")))
    packaged, checkout = package / "builtin_corpus", package.parents[1] / "corpus"
    for path in (packaged, checkout):
        if path.is_dir():
            return path
    raise CorpusError(f"this installation of onnxq has no builtin corpus: neither {packaged} nor {checkout} is there")


def find_cases(paths: Iterable[Path]) -> list[Path]:
    """All case files at or below some paths.

    Args:
        paths: Folders, or case files themselves. Links to folders aren't followed.

    Returns:
        Each case file once, sorted within each path by the names of its folders.

    Raises:
        CorpusError: A path has no case.
    """
    found: dict[Path, None] = {}
    for path in paths:
        cases = [path] if path.name == CASE_FILE else _below(path)
        if not cases:
            raise CorpusError(f"{path}: no {CASE_FILE} here or in a folder below")
        found.update(dict.fromkeys(cases))
    return list(found)


def case_id(case_file: Path, roots: Iterable[Path]) -> str:
    """How a person names a case, such as "residual/identity": its folder, from the corpus it was found in."""
    folder = case_file.parent
    root = next((r for r in roots if folder.is_relative_to(r)), folder.parent)
    return folder.relative_to(root).as_posix() if folder != root else folder.name


def _below(folder: Path) -> list[Path]:
    holders = (Path(parent) for parent, _, names in os.walk(folder) if CASE_FILE in names)
    return [holder / CASE_FILE for holder in sorted(holders, key=lambda p: p.parts)]
