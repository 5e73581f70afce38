"""`--onnxq-fuzz N`: searches are items like all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxq.fuzz import SOURCES

SPEC = "--onnxq-quantizer=python:faulty_quantizers:both"
TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quantizer with a fault can be imported, by workers too."""
    monkeypatch.syspath_prepend(str(TESTS))
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=":")


def test_onnxq_passes_and_nothing_else_runs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_not_asked_for(): assert False")
    result = pytester.runpytest("--onnxq-fuzz=12")
    result.assert_outcomes(passed=len(SOURCES))
    result.stdout.fnmatch_lines(["onnxq fuzz: 12 models for each quantizer"])


def test_with_other_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_asked_for(): pass")
    pytester.runpytest(".", "--onnxq-fuzz=6").assert_outcomes(passed=len(SOURCES) + 1)


def test_findings_fail_and_are_written(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--onnxq-fuzz=24", SPEC, "-k", "residual", "--onnxq-save-failures=found")
    result.assert_outcomes(failed=1, deselected=len(SOURCES) - 1)
    result.stdout.fnmatch_lines(
        [
            "faulty_quantizers.both 0: * kinds of faults in * models drawn from residual",
            "*see it again: onnxq * --quantizer python:faulty_quantizers:both",
            "FAILED onnxq-fuzz::residual?faulty_quantizers.both?*",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    cases = list((pytester.path / "found" / "found").iterdir())
    assert cases
    again = pytester.runpytest("--onnxq-corpus=found", SPEC)
    assert again.parseoutcomes()["failed"] >= len(cases)
    assert "failed" not in pytester.runpytest("--onnxq-corpus=found").parseoutcomes()


def test_without_a_folder_the_failure_says_how_to_keep_them(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--onnxq-fuzz=30", SPEC, "-k", "residual")
    result.stdout.fnmatch_lines(["to keep them as cases of a corpus: the same command with --onnxq-save-failures=DIR"])


def test_every_quantizer_is_searched(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--onnxq-fuzz=24", SPEC, "--onnxq-quantizer=onnxq", "-k", "residual")
    result.assert_outcomes(failed=1, passed=1, deselected=2 * (len(SOURCES) - 1))


def test_workers_share_the_searches(pytester: pytest.Pytester) -> None:
    pytester.runpytest("--onnxq-fuzz=6", "-n2").assert_outcomes(passed=len(SOURCES))


def test_last_failed(pytester: pytest.Pytester) -> None:
    pytester.runpytest("--onnxq-fuzz=15", SPEC, "-k", "residual").assert_outcomes(failed=1, deselected=len(SOURCES) - 1)
    again = pytester.runpytest("--onnxq-fuzz=15", SPEC, "--lf")
    again.assert_outcomes(failed=1, deselected=len(SOURCES) - 1)


def test_the_seed_of_hypothesis_counts(pytester: pytest.Pytester) -> None:
    def drawn(*arguments: str) -> list[str]:
        result = pytester.runpytest("--onnxq-fuzz=24", SPEC, "-k", "residual", *arguments)
        return [line for line in result.outlines if "drawn: " in line]

    assert drawn() == drawn("--hypothesis-seed=0")
    assert drawn() != drawn("--hypothesis-seed=7")


@pytest.mark.parametrize("value", ["many", "-1", "1.5"])
def test_a_number_of_models_is_a_whole_number(pytester: pytest.Pytester, value: str) -> None:
    result = pytester.runpytest(f"--onnxq-fuzz={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--onnxq-fuzz: expected a number of models" in result.stderr.str()


def test_the_ini_file_can_ask_for_it(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nonnxq_fuzz = 3")
    pytester.makepyfile("def test_there(): pass")
    pytester.runpytest(".").assert_outcomes(passed=len(SOURCES) + 1)
