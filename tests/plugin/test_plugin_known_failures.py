from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

MakeRefusal = Callable[..., Path]
MakeNetwork = Callable[..., Path]


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


def test_an_unexpected_pass_fails_with_the_block_to_delete(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    other = known("raises", quantizer="modelopt") + "# about the next one\n"
    case = refusal("corpus/x", extra=other + known("raises") + known("raises", quantizer="third")) / "case.toml"
    lines = case.read_text().splitlines()
    line = next(n for n, text in enumerate(lines, start=1) if 'quantizer = "onnxq"' in text) - 1
    assert lines[line - 1].strip() == "[[known_failure]]"
    result = pytester.runpytest("--onnxq-corpus", "corpus")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "XPASS(strict): passes, but is listed as a known failure: refuses with the wrong error",
            f"delete from corpus/x/case.toml, line {line}:",
            "",
            "*[[][[]known_failure]]",
            '*quantizer = "onnxq"',
            '*check = "raises"',
            '*versions = ""',
            '*reason = "refuses with the wrong error"',
        ],
        consecutive=False,
    )
    result.stdout.no_fnmatch_line("*third*")
    result.stdout.no_fnmatch_line("*Traceback*")
    case.write_text("\n".join([*lines[: line - 1], *lines[line + 4 :]]))
    pytester.runpytest("--onnxq-corpus", "corpus").assert_outcomes(passed=1)


def test_a_known_failure_that_is_no_block(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    case = refusal("corpus/x") / "case.toml"
    inline = 'known_failure = [{ quantizer = "onnxq", check = "raises", reason = "wrong" }]\n'
    case.write_text(inline + case.read_text())
    result = pytester.runpytest("--onnxq-corpus", "corpus")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["delete it from known_failure in corpus/x/case.toml"])


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
    monkeypatch.setattr(run, "run_case", lambda *_: 1 / 0)
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


@pytest.mark.parametrize("refuses", [False, True], ids=["other-error", "not-offered"])
def test_what_a_tool_does_not_offer_is_skipped(pytester: pytest.Pytester, network: MakeNetwork, refuses: bool) -> None:
    network("corpus/x")
    error = "UnsupportedError" if refuses else "InvalidModelError"
    pytester.makepyfile(
        tool=f"import onnxq\ndef quantize(model, feeds, options):\n    raise onnxq.{error}('no bf16 here')\n"
    )
    spec = "python:tool:quantize"
    pytester.syspathinsert()
    result = pytester.runpytest("--onnxq-corpus", "corpus", "--onnxq-quantizer", spec, "-rs")
    counts = result.parseoutcomes()
    assert set(counts) == {"skipped" if refuses else "failed"}
    if refuses:
        result.stdout.fnmatch_lines(["SKIPPED*the case asks for more than is offered: no bf16 here"])


def test_a_tool_that_does_not_offer_a_case_refuses_it(pytester: pytest.Pytester, network: MakeNetwork) -> None:
    case = network("corpus/x") / "case.toml"
    case.write_text(case.read_text() + '[expect]\nraises = "InvalidModelError"\n')
    pytester.makepyfile(
        tool="import onnxq\ndef quantize(model, feeds, options):\n    raise onnxq.UnsupportedError('not here')\n"
    )
    pytester.syspathinsert()
    pytester.runpytest("--onnxq-corpus", "corpus", "--onnxq-quantizer", "python:tool:quantize").assert_outcomes(
        passed=1
    )


def test_a_version_that_cant_be_compared(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    """A range of versions then says nothing; no range means all versions."""
    from onnxq.corpus.case import load_case

    folder = refusal("corpus/x", extra=known("raises", versions="<1") + known("raises", quantizer="other"))
    case = load_case(folder / "case.toml")
    assert case.known_failure("onnxq", "nightly", "raises") is None
    assert case.known_failure("other", "nightly", "raises") is not None


def test_reasons_are_escaped(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    evil = known("raises").replace("refuses", "\\u001b[2J refuses")
    refusal("corpus/x", raises="UsageError", extra=evil)
    result = pytester.runpytest("--onnxq-corpus", "corpus", "-rx")
    result.assert_outcomes(xfailed=1)
    assert "\x1b[2J" not in result.stdout.str()
