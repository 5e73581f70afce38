from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

MakeRefusal = Callable[..., Path]


def known(check: str, *, quantizer: str = "onnxq", versions: str = "") -> str:
    return f"""
    [[known_failure]]
    quantizer = "{quantizer}"
    check = "{check}"
    versions = "{versions}"
    reason = "refuses with the wrong error"
    """


def test_a_known_failure_is_an_xfail_with_its_reason(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    refusal("corpus/x", raises="UsageError", extra=known("raises"))
    result = pytester.runpytest("--onnxq-corpus", "corpus", "-rx")
    result.assert_outcomes(xfailed=1)
    result.stdout.fnmatch_lines(["XFAIL corpus/x/case.toml::raises[[]onnxq] - refuses with the wrong error"])
    assert result.ret == pytest.ExitCode.OK


def test_an_unexpected_pass_fails(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    refusal("corpus/x", extra=known("raises"))
    result = pytester.runpytest("--onnxq-corpus", "corpus")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*XPASS(strict)*refuses with the wrong error*"])


@pytest.mark.parametrize(("versions", "applies"), [("<0", False), (">=0", True), (">=0,<0.0.1", False), ("", True)])
def test_the_range_of_versions_counts(
    pytester: pytest.Pytester, refusal: MakeRefusal, versions: str, applies: bool
) -> None:
    refusal("corpus/x", raises="UsageError", extra=known("raises", versions=versions))
    result = pytester.runpytest("--onnxq-corpus", "corpus")
    result.assert_outcomes(xfailed=int(applies), failed=int(not applies))


def test_a_known_failure_of_another_quantizer(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    refusal("corpus/x", extra=known("raises", quantizer="modelopt"))
    pytester.runpytest("--onnxq-corpus", "corpus").assert_outcomes(passed=1)


def test_a_broken_harness_is_no_known_failure(
    pytester: pytest.Pytester, refusal: MakeRefusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxq.corpus import run

    refusal("corpus/x", raises="UsageError", extra=known("raises"))
    monkeypatch.setattr(run, "run_case", lambda case, quantizer: 1 / 0)
    pytester.runpytest("--onnxq-corpus", "corpus").assert_outcomes(failed=1)


@pytest.mark.parametrize("extra", ["", known("quantizes")], ids=["unknown", "known"])
def test_checks_after_a_failed_quantization(pytester: pytest.Pytester, refusal: MakeRefusal, extra: str) -> None:
    case = refusal("corpus/x") / "case.toml"
    case.write_text(case.read_text().split("[expect]")[0] + extra)
    result = pytester.runpytest("--onnxq-corpus", "corpus", "-rsx")
    counts = result.parseoutcomes()
    if extra:
        assert counts["xfailed"] == 1
        assert set(counts) == {"xfailed", "skipped"}
        result.stdout.fnmatch_lines(["SKIPPED*nothing to check, onnxq is known to fail: refuses with the wrong error"])
    else:
        assert set(counts) == {"failed"}
        result.stdout.fnmatch_lines(["quantization failed: InvalidModelError: *not an ONNX model*"])
