"""The example of a project that tests its own quantizer, run as its authors would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "downstream"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache", ".hypothesis")
    return Path(shutil.copytree(EXAMPLE, tmp_path / "toyquant", ignore=ignored))


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    return subprocess.run(
        [sys.executable, *words],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "PYTHONPATH": str(project / "src")},
        timeout=300,
    )


def test_its_own_tests_and_corpus_pass(project: Path) -> None:
    result = run(project, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider")
    assert result.returncode == 0, result.stdout + result.stderr
    for test in ("test_a_model_of_a_fixture", "test_an_own_check_of_each_case", "test_any_network", "case.toml::valid"):
        assert re.search(rf"PASSED .*{test}", result.stdout)


def test_the_builtin_corpus_finds_what_it_cannot_do(project: Path) -> None:
    words = ("-m", "pytest", "-p", "no:cacheprovider", "--onnxq-corpus", "corpus", "--onnxq-corpus", "builtin")
    result = run(project, *words, "--onnxq-quantizer", "python:toyquant:quantize", "-k", "identity_swapped")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "toyquant 0.3.0" in result.stdout
    assert re.search(r"FAILED .*residual/identity_swapped/case.toml::quantized-add-inputs\[toyquant\]", result.stdout)
    assert re.search(r"\d+ failed, \d+ passed", result.stdout)


def test_the_command_line_says_the_same(project: Path) -> None:
    words = ("corpus", "run", "corpus", "--quantizer", "python:toyquant:quantize")
    result = run(project, "-m", "onnxq", *words)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "own/quantizes_conv" in result.stdout
