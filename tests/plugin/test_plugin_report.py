from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

MakeNetwork = Callable[..., Path]
MakeRefusal = Callable[..., Path]

KNOWN = '[[known_failure]]\nquantizer = "onnxq"\ncheck = "raises"\nreason = "a reason to know"\n'


@pytest.fixture
def corpus(network: MakeNetwork, refusal: MakeRefusal) -> None:
    network("corpus/net", title="A network to draw")
    refusal("corpus/bad", raises="UsageError", title="A wrong <refusal>")
    refusal("corpus/known", raises="UsageError", extra=KNOWN)
    refusal("corpus/broken", extra="[expekt]\n")


def check(result: pytest.RunResult, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<svg" in text
    assert "A network to draw" in text
    assert "A wrong &lt;refusal&gt;" in text
    assert "a reason to know" in text
    assert "expekt" in text
    assert re.search(r"onnxq \d+\.", text)
    result.stdout.fnmatch_lines([f"page: {page.name}"])


@pytest.mark.usefixtures("corpus")
def test_the_page(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--onnxq-corpus", "corpus", "--onnxq-report", "page.html")
    check(result, pytester.path / "page.html")


def test_a_message_says_nothing_that_stands_above_it(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    refusal("corpus/bad", raises="CalibrationError", title="A title of its own")
    result = pytester.runpytest("--onnxq-corpus", "corpus", "--onnxq-report", "page.html")
    result.stdout.fnmatch_lines(["A title of its own", "raises of onnxq *:"])
    text = (pytester.path / "page.html").read_text(encoding="utf-8")
    (message,) = re.findall(r'<div class="trouble failed">.*?<pre>(.*?)</pre>', text, re.DOTALL)
    assert message.startswith("expected")
    assert "A title of its own" not in message
    assert "raises of" not in message


def test_the_date_has_minutes_and_a_zone(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    refusal("corpus/a")
    pytester.runpytest("--onnxq-corpus", "corpus", "--onnxq-report", "page.html")
    text = (pytester.path / "page.html").read_text(encoding="utf-8")
    assert re.search(r"<dt>Date</dt><dd>\d{4}-\d\d-\d\d \d\d:\d\d UTC</dd>", text)


@pytest.mark.usefixtures("corpus")
def test_xdist(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--onnxq-corpus", "corpus", "-n", "2", "--onnxq-report", "page.html")
    check(result, pytester.path / "page.html")


def test_the_ini_twin_is_relative_to_the_file(
    pytester: pytest.Pytester, refusal: MakeRefusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal("corpus/a")
    ini = pytester.makeini("[pytest]\nonnxq_corpus = corpus\nonnxq_report = page.html")
    monkeypatch.chdir(pytester.mkdir("elsewhere"))
    pytester.runpytest("-c", str(ini)).assert_outcomes(passed=1)
    assert (pytester.path / "page.html").is_file()


def test_nothing_is_written_without_cases(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass")
    pytester.runpytest("--onnxq-report", "page.html").assert_outcomes(passed=1)
    assert not (pytester.path / "page.html").exists()


def test_a_page_that_cant_be_written(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    refusal("corpus/a")
    result = pytester.runpytest("--onnxq-corpus", "corpus", "--onnxq-report", "nowhere/page.html")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --onnxq-report: there is no folder *nowhere"])
    pytester.mkdir("page.html")
    result = pytester.runpytest("--onnxq-corpus", "corpus", "--onnxq-report", "page.html")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["page: *page.html*"])
