"""Writing a case: the text of its case file, and its folder, which appears whole or not at all."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onnxq.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def case_text(content: Mapping[str, Any], *, comments: Sequence[str] = ()) -> str:
    """The text of a case file.

    Args:
        content: What `tomllib` would read from it: strings, numbers, bools, lists, and tables of these. Values that are
            None are left out, as are empty tables and lists.
        comments: Lines to put first.

    Returns:
        TOML: top keys first, then the tables `[model]`, `[expect]` and so on, with inline tables inside.
    """
    top = {key: value for key, value in content.items() if not _is_table(value)}
    blocks = ["\n".join([*(f"# {_printable(line)}" for line in comments), *_lines(top)])]
    for key, value in content.items():
        if _is_table(value):
            blocks += _table(key, value)
    return "\n\n".join(block for block in blocks if block) + "\n"


@contextmanager
def new_case_folder(corpus: Path, name: str) -> Iterator[Path]:
    """A private folder to make a case in, which becomes the case's folder when the block ends without an error.

    Args:
        corpus: The folder of the corpus; it must exist.
        name: "family/case".

    Yields:
        A folder on the same file system, with the same last two names.

    Raises:
        UsageError: The name is no such pair, the case exists already, or the corpus can't be written to.
    """
    parts = name.split("/")
    if len(parts) != 2 or not all(map(_NAME.fullmatch, parts)):
        raise UsageError(f'name "{name}": give FAMILY/CASE, each of letters, digits, "_", "-" and "."')
    if not corpus.is_dir():
        raise UsageError(f"{corpus}: no such folder; make it first, or name the folder of a corpus")
    target = corpus / parts[0] / parts[1]
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target}: exists already, and is never overwritten: give another name, or remove it")
    try:
        with tempfile.TemporaryDirectory(prefix=".onnxq-", dir=corpus) as private:
            folder = Path(private, *parts)
            folder.mkdir(parents=True)
            yield folder
            family_is_new = not target.parent.exists()
            target.parent.mkdir(exist_ok=True)
            try:
                folder.rename(target)
            except OSError:
                if family_is_new:
                    target.parent.rmdir()
                raise
    except OSError as error:
        raise UsageError(f"{target}: can't be written: {error.strerror or error}") from None


def _is_table(value: Any) -> bool:
    is_array = isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)
    return is_array or isinstance(value, Mapping)


def _table(path: str, value: Any) -> Iterator[str]:
    """The blocks of a table, or of each table of an array; arrays of tables in it get blocks of their own."""
    for item, title in [(value, f"[{path}]")] if isinstance(value, Mapping) else [(v, f"[[{path}]]") for v in value]:
        arrays = {key: v for key, v in item.items() if _is_table(v) and not isinstance(v, Mapping)}
        lines = list(_lines({key: v for key, v in item.items() if key not in arrays}))
        if lines:
            yield "\n".join([title, *lines])
        for key, inner in arrays.items():
            yield from _table(f"{path}.{_key(key)}", inner)


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    for key, value in table.items():
        if value is not None and value != {} and value != []:
            yield f"{_key(key)} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return _string(value) if isinstance(value, str) else repr(value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _string(key)


def _string(text: str) -> str:
    """A string of JSON is one of TOML, but for the character DEL and for lone surrogates, which TOML lacks."""
    text = text.encode("utf-8", "replace").decode()
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
