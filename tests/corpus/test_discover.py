from __future__ import annotations

from pathlib import Path

import pytest

from onnxq.corpus.discover import builtin_corpus, case_id, corpus_path, find_cases
from onnxq.errors import CorpusError


def make(root: Path, *names: str) -> list[Path]:
    files = [root / name / "case.toml" for name in names]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    return files


def test_sorted_by_folder_whatever_the_file_system_says(tmp_path: Path) -> None:
    later, earlier, between = make(tmp_path, "b/x", "a/z", "a-b/y")
    assert find_cases([tmp_path]) == [earlier, between, later]


def test_each_case_once_in_the_order_of_the_paths(tmp_path: Path) -> None:
    one, two = make(tmp_path, "a/one", "b/two")
    assert find_cases([two, tmp_path, one.parent]) == [two, one]


def test_a_folder_without_cases(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"no case\.toml here or in a folder below"):
        find_cases([tmp_path])


def test_ids(tmp_path: Path) -> None:
    (file,) = make(tmp_path, "residual/identity")
    assert case_id(file, [tmp_path]) == "residual/identity"
    assert case_id(file, [tmp_path / "other", tmp_path / "residual"]) == "identity"
    assert case_id(file, [file.parent]) == "identity"
    assert case_id(file, [file]) == "identity"


def test_paths(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "link").symlink_to("corpus")
    assert corpus_path("corpus/../link", tmp_path) == tmp_path / "link"
    assert corpus_path("builtin", tmp_path) == builtin_corpus()
    with pytest.raises(CorpusError, match=r"nowhere: no such path; give .* builtin"):
        corpus_path("nowhere", tmp_path)


def test_the_builtin_corpus_is_the_one_of_the_repository() -> None:
    assert builtin_corpus().resolve() == Path(__file__).parents[2].joinpath("corpus").resolve()
