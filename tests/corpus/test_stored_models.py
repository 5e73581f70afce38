"""The stored models of the corpus are what their texts say, byte for byte."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

CORPUS = Path(__file__).parents[2] / "corpus"
FOLDERS = sorted(path.parent for path in CORPUS.glob("*/*/model.txt"))


@pytest.fixture(scope="module")
def make_models() -> ModuleType:
    spec = importlib.util.spec_from_file_location("corpus_make_models", CORPUS / "make_models.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: "/".join(folder.parts[-2:]))
def test_stored_files_are_what_the_text_makes(make_models: ModuleType, folder: Path) -> None:
    made = make_models.make_files(folder)
    stale = [name for name, content in made.items() if (folder / name).read_bytes() != content]
    assert stale == [], "run: python corpus/make_models.py"


def test_every_stored_file_has_a_text_that_makes_it(make_models: ModuleType) -> None:
    stored = {p for p in CORPUS.glob("*/*/*") if p.name not in ("case.toml", "model.txt") and p.is_file()}
    made = {folder / name for folder in make_models.model_folders() for name in make_models.make_files(folder)}
    assert stored == made


def test_no_edit_or_data_for_a_case_that_is_gone(make_models: ModuleType) -> None:
    cases = {"/".join(folder.parts[-2:]) for folder in FOLDERS}
    assert {*make_models.EDITS, *make_models.CALIBRATION_DATA} <= cases


def test_weights_depend_on_the_case_and_the_name_only(make_models: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "family" / "case"
    folder.mkdir(parents=True)
    text = (CORPUS / "residual" / "shared_pair" / "model.txt").read_text(encoding="utf-8")
    (folder / "model.txt").write_text(text, encoding="utf-8")
    here = make_models.make_files(folder)["model.onnx"]
    assert here == make_models.make_files(folder)["model.onnx"]
    assert here != make_models.make_files(CORPUS / "residual" / "shared_pair")["model.onnx"]


def test_check_tells_a_stale_model(
    make_models: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "family" / "case"
    folder.mkdir(parents=True)
    source = CORPUS / "residual" / "shared_pair"
    (folder / "model.txt").write_text((source / "model.txt").read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(make_models, "CORPUS", tmp_path)
    assert make_models.main(["--check"]) == 1
    assert "differs: family/case/model.onnx" in capsys.readouterr().out
    assert not (folder / "model.onnx").exists()
    assert make_models.main([]) == 0
    assert make_models.main(["--check"]) == 0
