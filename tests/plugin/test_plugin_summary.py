from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

MakeRefusal = Callable[..., Path]

TOY = """
from onnxq.errors import InvalidModelError, UsageError

def picky(model, calibration_data, options):
    raise UsageError("no")

def other(model, calibration_data, options):
    raise UsageError("no")
"""

KNOWN = '[[known_failure]]\nquantizer = "onnxq"\ncheck = "raises"\nreason = "known"\n'


def section(result: pytest.RunResult) -> list[str]:
    """What stands in the section, without the lines around it."""
    lines = result.outlines
    start = next(number for number, line in enumerate(lines) if line.strip("=") == " onnxq ")
    end = next(number for number, line in enumerate(lines[start + 1 :], start + 1) if line.startswith("==="))
    return lines[start + 1 : end]


@pytest.fixture
def quantizers(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options for onnxq and two quantizers that are told apart by their names only."""
    pytester.makepyfile(toy=TOY)
    monkeypatch.syspath_prepend(pytester.path)
    specs = ("onnxq", "picky=python:toy:picky", "other=python:toy:other@onnxruntime")
    return [word for spec in specs for word in ("--onnxq-quantizer", spec)]


def test_counts(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    refusal("corpus/good")
    refusal("corpus/bad", raises="UsageError")
    refusal("corpus/known", raises="UsageError", extra=KNOWN)
    lines = section(pytester.runpytest("--onnxq-corpus", "corpus"))
    assert lines[0].split() == ["cases", "passed", "failed", "known", "skipped"]
    assert lines[1].split()[:1] + lines[1].split()[2:] == ["onnxq", "3", "1", "1", "1", "0"]
    assert lines[2].startswith("to run what failed again: pytest --onnxq-corpus corpus")
    assert lines[2].endswith(" --lf")
    assert len(lines) == 3


def test_nothing_to_do(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    refusal("corpus/good")
    assert len(section(pytester.runpytest("--onnxq-corpus", "corpus"))) == 2


def test_no_section_without_cases(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    pytester.makepyfile("def test_it(): pass")
    assert not any("= onnxq =" in line for line in pytester.runpytest().outlines)
    refusal("corpus/good")
    result = pytester.runpytest("--onnxq-corpus", "corpus", "-k", "nothing")
    assert not any("= onnxq =" in line for line in result.outlines)


def test_a_case_that_cant_be_read(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    refusal("corpus/good")
    refusal("corpus/broken", extra="[expekt]\n")
    lines = section(pytester.runpytest("--onnxq-corpus", "corpus"))
    assert "cases that can't be read: 1" in lines
    assert any(line.endswith("--lf") for line in lines)


def test_table_of_cases_and_quantizers(pytester: pytest.Pytester, refusal: MakeRefusal, quantizers: list[str]) -> None:
    # the file is no model, so every quantizer gets the same answer, whatever it would raise
    refusal("corpus/a/good")
    refusal("corpus/b/bad", raises="UsageError")
    refusal("corpus/c/known", raises="UsageError", extra=KNOWN)
    lines = section(pytester.runpytest("--onnxq-corpus", "corpus", *quantizers))
    start = next(number for number, line in enumerate(lines) if line.split() == ["onnxq", "other", "picky"])
    table = [line.split("  ") for line in lines[start + 1 : start + 4]]
    assert [[cell.strip() for cell in row if cell] for row in table] == [
        ["a/good", "passed", "passed", "passed"],
        ["b/bad", "1 failed", "1 failed", "1 failed"],
        ["c/known", "1 known", "1 failed", "1 failed"],
    ]


def test_a_long_table_shows_failures_only(
    pytester: pytest.Pytester, refusal: MakeRefusal, quantizers: list[str]
) -> None:
    for number in range(45):
        refusal(f"corpus/good{number}")
    refusal("corpus/bad", raises="UsageError")
    lines = section(pytester.runpytest("--onnxq-corpus", "corpus", *quantizers))
    assert not any(line.startswith("good") for line in lines)
    assert [line.split()[0] for line in lines if line.endswith(" 1 failed")] == ["bad"]
    assert "and 45 cases without failures" in lines


def test_two_quantizers_of_one_name(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    refusal("corpus/a")
    specs = ("--onnxq-quantizer", "onnxq", "--onnxq-quantizer", "onnxq:tensorrt")
    result = pytester.runpytest("--onnxq-corpus", "corpus", *specs)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(['ERROR: --onnxq-quantizer: both "onnxq" and "onnxq:tensorrt" are named "onnxq"*'])


def test_names_are_escaped(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    refusal("corpus/a\x1b[31m", raises="UsageError", title="\\u001b]0;title\\u0007")
    result = pytester.runpytest("--onnxq-corpus", "corpus", "--color=no", "-v")
    result.assert_outcomes(failed=1)
    assert not any(line for line in result.outlines if not line.isprintable())
    pytester.runpytest("--onnxq-corpus", "corpus", "--lf").assert_outcomes(failed=1)


def test_xdist(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    for number in range(3):
        refusal(f"corpus/good{number}")
    refusal("corpus/bad", raises="UsageError")
    lines = section(pytester.runpytest_subprocess("--onnxq-corpus", "corpus", "-n", "2", "-p", "no:cacheprovider"))
    assert lines[1].split()[2:] == ["4", "3", "1", "0", "0"]
