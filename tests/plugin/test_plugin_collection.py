from __future__ import annotations

import os
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

MakeRefusal = Callable[..., Path]

QUANTIZED = """
schema = 1
title = "A healthy output beside a stale one"
source = "made up"
tags = ["weak", "rank"]
[model]
builder = "weak.stale_rank0_output"
args = { symbolic = true, size = 8 }
[expect]
outputs = { y = ["batch", 16], probabilities = ["batch", 10] }
"""


@pytest.fixture
def corpus(refusal: MakeRefusal) -> None:
    """Two cases below corpus/, the second of which fails."""
    refusal("corpus/a/good")
    refusal("corpus/b/bad", raises="CalibrationError")


def collected(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line and " " not in line]


GOOD, BAD = "corpus/a/good/case.toml::raises[onnxq]", "corpus/b/bad/case.toml::raises[onnxq]"


@pytest.mark.usefixtures("corpus")
class TestWhatIsCollected:
    @pytest.fixture(autouse=True)
    def module(self, pytester: pytest.Pytester) -> None:
        pytester.path.joinpath("tests").mkdir()
        pytester.path.joinpath("tests/test_own.py").write_text("def test_own(): pass\n")

    def ids(self, pytester: pytest.Pytester, *args: str) -> list[str]:
        return collected(pytester.runpytest("--collect-only", "-q", *args))

    def test_nothing_without_the_option(self, pytester: pytest.Pytester) -> None:
        assert self.ids(pytester) == ["tests/test_own.py::test_own"]

    def test_cases_alone_without_arguments_and_testpaths(self, pytester: pytest.Pytester) -> None:
        assert self.ids(pytester, "--onnxq-corpus", "corpus") == [GOOD, BAD]

    def test_cases_beside_testpaths(self, pytester: pytest.Pytester) -> None:
        pytester.makeini("[pytest]\ntestpaths = tests")
        assert self.ids(pytester, "--onnxq-corpus", "corpus") == ["tests/test_own.py::test_own", GOOD, BAD]

    def test_cases_beside_arguments(self, pytester: pytest.Pytester) -> None:
        ids = self.ids(pytester, "--onnxq-corpus", "corpus/b", "tests")
        assert ids == ["tests/test_own.py::test_own", BAD]

    def test_a_corpus_within_an_argument_is_collected_once(self, pytester: pytest.Pytester) -> None:
        assert sorted(self.ids(pytester, "--onnxq-corpus", "corpus", ".")) == [GOOD, BAD, "tests/test_own.py::test_own"]

    def test_overlapping_corpora_are_collected_once(self, pytester: pytest.Pytester) -> None:
        assert self.ids(pytester, "--onnxq-corpus", "corpus/b", "--onnxq-corpus", "corpus") == [GOOD, BAD]

    @pytest.mark.parametrize("folder", ["venv/lib", "build", ".hidden"])
    def test_a_corpus_in_a_folder_that_pytest_ignores(self, pytester: pytest.Pytester, folder: str) -> None:
        """Such as the builtin one in a virtual environment within the project: nothing else may get lost."""
        inside = pytester.path / folder
        inside.mkdir(parents=True)
        pytester.path.joinpath("corpus").rename(inside / "corpus")
        (inside / "test_foreign.py").write_text("def test_foreign(): pass\n")
        expected = sorted([f"{folder}/{GOOD}", f"{folder}/{BAD}", "tests/test_own.py::test_own"])
        assert sorted(self.ids(pytester, "--onnxq-corpus", f"{folder}/corpus", ".")) == expected
        pytester.makeini(f"[pytest]\nonnxq_corpus = {folder}/corpus")
        assert sorted(self.ids(pytester)) == expected
        assert self.ids(pytester, "-k", "bad") == [f"{folder}/{BAD}"]
        pytester.runpytest().assert_outcomes(passed=2, failed=1)
        pytester.runpytest("--lf").assert_outcomes(failed=1)

    def test_several_corpora_of_which_one_is_a_file(self, pytester: pytest.Pytester) -> None:
        ids = self.ids(pytester, "--onnxq-corpus", "corpus/b/bad/case.toml", "--onnxq-corpus", "corpus/a")
        assert ids == [BAD, GOOD]

    @pytest.mark.parametrize("corpus_option", [[], ["--onnxq-corpus", "corpus"]], ids=["alone", "in a corpus"])
    def test_an_argument_in_the_corpus_selects_from_it(
        self, pytester: pytest.Pytester, corpus_option: list[str]
    ) -> None:
        assert self.ids(pytester, *corpus_option, BAD) == [BAD]
        assert self.ids(pytester, *corpus_option, "corpus/a/good/case.toml") == [GOOD]
        assert self.ids(pytester, *corpus_option, "corpus/a/good/case.toml::raises") == [GOOD]

    def test_k_and_deselect(self, pytester: pytest.Pytester) -> None:
        assert self.ids(pytester, "--onnxq-corpus", "corpus", "-k", "bad and raises") == [BAD]
        assert self.ids(pytester, "--onnxq-corpus", "corpus", "--deselect", BAD) == [GOOD]

    def test_another_file_named_case_toml_is_left_alone(self, pytester: pytest.Pytester) -> None:
        assert self.ids(pytester, ".") == ["tests/test_own.py::test_own"]


@pytest.mark.usefixtures("corpus")
class TestIniTwins:
    def test_the_path_is_relative_to_the_ini_file(
        self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ini = pytester.makeini("[pytest]\nonnxq_corpus = corpus/a")
        folder = pytester.path / "elsewhere"
        folder.mkdir()
        monkeypatch.chdir(folder)
        result = pytester.runpytest("--collect-only", "-q", "-c", str(ini))
        assert collected(result) == [GOOD]

    def test_files_named_on_the_command_line_are_the_run(self, pytester: pytest.Pytester) -> None:
        pytester.makeini("[pytest]\nonnxq_corpus = corpus")
        own = pytester.makepyfile("def test_own(): pass")
        assert collected(pytester.runpytest("--collect-only", "-q", own.name)) == [f"{own.name}::test_own"]
        assert collected(pytester.runpytest("--collect-only", "-q", BAD)) == [BAD]
        assert sorted(collected(pytester.runpytest("--collect-only", "-q"))) == [GOOD, BAD, f"{own.name}::test_own"]

    def test_toml_lists(self, pytester: pytest.Pytester) -> None:
        pytester.makepyprojecttoml(
            '[tool.pytest.ini_options]\nonnxq_corpus = ["corpus/a", "corpus/b"]\nonnxq_quantizer = ["onnxq"]'
        )
        assert collected(pytester.runpytest("--collect-only", "-q")) == [GOOD, BAD]

    def test_an_unknown_quantizer(self, pytester: pytest.Pytester) -> None:
        pytester.makeini("[pytest]\nonnxq_quantizer = onnxqq")
        result = pytester.runpytest()
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(['ERROR: quantizer "onnxqq"*available: onnxq, *'])


def test_a_case_outside_of_the_project(
    pytester: pytest.Pytester, refusal: MakeRefusal, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "corpus"
    shutil.move(refusal("moved/x/bad", raises="UsageError").parents[1], outside)
    pytester.makeini("[pytest]")
    option = f"--onnxq-corpus={outside}"
    result = pytester.runpytest(option)
    result.assert_outcomes(failed=1)
    relative = os.path.relpath(outside, pytester.path)
    result.stdout.fnmatch_lines([f"FAILED {relative}/x/bad/case.toml::raises[[]onnxq]*"])
    pytester.runpytest(f"{relative}/x/bad/case.toml::raises[onnxq]").assert_outcomes(failed=1)
    pytester.runpytest(option, "--lf").assert_outcomes(failed=1)
    pytester.runpytest(option, f"{outside}/x/bad/case.toml::raises[onnxq]").assert_outcomes(failed=1)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--onnxq-corpus", "nowhere"], "*nowhere: no such path*"),
        (["--onnxq-corpus", "empty"], "*empty: no case.toml here or in a folder below"),
        (
            ["--onnxq-quantizer", "unheard-of"],
            'ERROR: quantizer "unheard-of": there is none of this name; available: onnxq, *',
        ),
    ],
)
def test_wrong_options(pytester: pytest.Pytester, args: list[str], message: str) -> None:
    pytester.mkdir("empty")
    result = pytester.runpytest(*args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


@pytest.mark.usefixtures("corpus")
def test_last_failed_runs_what_failed(pytester: pytest.Pytester) -> None:
    pytester.runpytest("--onnxq-corpus", "corpus").assert_outcomes(passed=1, failed=1)
    result = pytester.runpytest("--onnxq-corpus", "corpus", "--lf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*FAILED corpus/b/bad/case.toml::raises[[]onnxq]*"])


def test_failure_is_short_and_says_all(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    refusal("corpus/x", raises="CalibrationError", title="A file of noise")
    result = pytester.runpytest("--onnxq-corpus", "corpus")
    result.stdout.fnmatch_lines(
        [
            "A file of noise",
            "raises of onnxq *:",
            "expected: CalibrationError",
            "found:    InvalidModelError: *model.onnx: not an ONNX model*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_a_case_that_cant_be_read_is_one_failing_item(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    refusal("corpus/x", extra="[expekt]\n")
    refusal("corpus/y")
    result = pytester.runpytest("--onnxq-corpus", "corpus")
    result.assert_outcomes(passed=1, failed=1, errors=0)
    result.stdout.fnmatch_lines(
        [
            '*corpus/x/case.toml: expekt: unknown key "expekt"; did you mean "expect"?*',
            "FAILED corpus/x/case.toml::case-is-readable*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*CorpusError*")


def test_header_and_properties(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("corpus")
    folder.joinpath("case.toml").write_text(QUANTIZED)
    result = pytester.runpytest("--onnxq-corpus", "corpus", "--junitxml", "junit.xml")
    passed = result.parseoutcomes()["passed"]
    assert result.parseoutcomes() == {"passed": passed}
    assert passed > 10
    result.stdout.fnmatch_lines(["onnxq corpus: corpus (1 case)", "onnxq quantizers: onnxq *"])
    cases = list(ElementTree.parse(pytester.path / "junit.xml").iter("testcase"))
    assert len(cases) == passed
    for case in cases:
        properties = {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
        assert properties.pop("onnxq_quantizer_version")
        assert properties == {
            "onnxq_case": "A healthy output beside a stale one",
            "onnxq_source": "made up",
            "onnxq_tags": "weak rank",
            "onnxq_quantizer": "onnxq",
            "onnxq_check": case.attrib["name"].removesuffix("[onnxq]"),
        }


def test_a_case_is_quantized_once_and_then_freed(
    pytester: pytest.Pytester, refusal: MakeRefusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxq.corpus import run

    for name in ("one", "two"):
        pytester.path.joinpath("corpus", name).mkdir(parents=True)
        pytester.path.joinpath("corpus", name, "case.toml").write_text(QUANTIZED)
    refusal("corpus/zzz")
    pytester.makeconftest(
        """
        import gc, pytest
        from onnxq.corpus.run import CaseRun

        @pytest.hookimpl(trylast=True)
        def pytest_runtest_teardown(item, nextitem):
            gc.collect()
            runs = [o for o in gc.get_objects() if isinstance(o, CaseRun)]
            done = nextitem is None or nextitem.parent is not item.parent
            assert len(runs) <= (0 if done else 1)
        """
    )
    calls = []
    original = run.run_case
    monkeypatch.setattr(run, "run_case", lambda case, *rest: calls.append(case) or original(case, *rest))
    result = pytester.runpytest("--onnxq-corpus", "corpus", "-q")
    assert set(result.parseoutcomes()) == {"passed"}
    assert len(calls) == 3


def test_xdist(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    refusal("corpus/bad", raises="UsageError")
    for number in range(4):
        refusal(f"corpus/good{number}")
    result = pytester.runpytest_subprocess("--onnxq-corpus", "corpus", "-n", "2", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["FAILED corpus/bad/case.toml::raises[[]onnxq]*", "*1 failed, 4 passed*"])
