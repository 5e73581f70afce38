from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onnxq.corpus.checks import check_names
from onnxq.corpus.format import Expect

MakeNetwork = Callable[..., Path]
MakeRefusal = Callable[..., Path]

CHECKS = len(check_names(Expect()))
"""How many checks a case has that expects nothing in particular."""

CORPUS = ("--onnxq-corpus", "corpus")


@pytest.fixture
def stray(network: MakeNetwork) -> Path:
    """A golden that no check reads: its name is misspelt."""
    file = network("corpus/net") / "expected" / "placment.txt"
    file.parent.mkdir()
    file.write_text("x\n")
    return file


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest(*CORPUS, *args)


def is_reported(result: pytest.RunResult) -> bool:
    return any(line.startswith("goldens unused") for line in result.outlines)


@pytest.mark.parametrize("args", [(), ("--onnxq-unused", "warn")], ids=["default", "warn"])
def test_warn(pytester: pytest.Pytester, stray: Path, args: tuple[str, ...]) -> None:
    result = run(pytester, *args)
    result.assert_outcomes(passed=CHECKS)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "goldens unused: 1",
            "    corpus/net/expected/placment.txt",
            "to delete the unused goldens: pytest --onnxq-corpus corpus * --onnxq-unused=delete",
        ]
    )
    assert stray.exists()


def test_ignore(pytester: pytest.Pytester, stray: Path) -> None:
    result = run(pytester, "--onnxq-unused", "ignore")
    assert result.ret == pytest.ExitCode.OK
    assert not is_reported(result)
    assert stray.exists()


def test_fail(pytester: pytest.Pytester, stray: Path) -> None:
    result = run(pytester, "--onnxq-unused", "fail")
    result.assert_outcomes(passed=CHECKS)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert is_reported(result)
    stray.unlink()
    assert run(pytester, "--onnxq-unused", "fail").ret == pytest.ExitCode.OK


def test_delete_takes_what_is_unused_and_nothing_else(pytester: pytest.Pytester, stray: Path) -> None:
    run(pytester, "--onnxq-update", "new")
    used = stray.with_name("placement.txt")
    result = run(pytester, "--onnxq-unused", "delete")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["goldens unused, deleted: 1", "    corpus/net/expected/placment.txt"])
    assert used.exists()
    assert not stray.exists()
    assert not is_reported(run(pytester))


def test_delete_leaves_no_empty_folder(pytester: pytest.Pytester, stray: Path) -> None:
    run(pytester, "--onnxq-unused", "delete")
    assert not stray.parent.exists()
    assert (stray.parents[1] / "case.toml").exists()


def test_the_golden_of_a_refusal(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    file = refusal("corpus/x") / "expected" / "placement.txt"
    file.parent.mkdir()
    file.write_text("x\n")
    result = run(pytester, "--onnxq-unused", "delete")
    result.assert_outcomes(passed=1)
    assert not file.exists()


def test_goldens_of_quantizers_that_arent_tested(pytester: pytest.Pytester, network: MakeNetwork) -> None:
    """Nobody knows whether they are used; but what no quantizer could read is unused."""
    folder = network("corpus/net") / "expected" / "toy"
    folder.mkdir(parents=True)
    for name in ("placement.txt", "notes.md"):
        (folder / name).write_text("x\n")
    result = run(pytester, "--onnxq-unused", "delete")
    result.stdout.fnmatch_lines(["goldens unused, deleted: 1", "    corpus/net/expected/toy/notes.md"])
    assert (folder / "placement.txt").exists()


def test_links_are_not_followed(pytester: pytest.Pytester, network: MakeNetwork) -> None:
    outside = pytester.mkdir("outside")
    (outside / "precious.txt").write_text("x\n")
    folder = network("corpus/net")
    (folder / "expected").symlink_to(outside)
    other = network("corpus/other") / "expected"
    other.mkdir()
    (other / "linked").symlink_to(outside)
    (other / "file.txt").symlink_to(outside / "precious.txt")
    run(pytester, "--onnxq-unused", "delete")
    assert (outside / "precious.txt").exists()
    assert not (other / "file.txt").is_symlink()


class TestRunsThatKnowTooLittle:
    """A part of a case says nothing about its goldens: they are neither reported nor deleted."""

    @pytest.fixture(autouse=True)
    def second_case(self, pytester: pytest.Pytester, stray: Path, refusal: MakeRefusal) -> None:
        refusal("corpus/bad", raises="CalibrationError")

    def check(self, result: pytest.RunResult, stray: Path) -> None:
        assert not is_reported(result)
        assert stray.exists()

    @pytest.mark.parametrize(
        "args",
        [
            ["-k", "not opset and not runs"],
            ["-k", "bad"],
            ["corpus/net/case.toml::valid[onnxq]"],
            ["corpus/bad"],
            ["--deselect", "corpus/net/case.toml::runs[onnxq]"],
            ["-x"],
            ["--maxfail=1"],
            ["--collect-only"],
        ],
        ids=lambda args: " ".join(args),
    )
    def test_it(self, pytester: pytest.Pytester, stray: Path, args: list[str]) -> None:
        self.check(run(pytester, *args, "--onnxq-unused", "delete"), stray)

    def test_last_failed(self, pytester: pytest.Pytester, stray: Path) -> None:
        run(pytester, "--onnxq-unused", "ignore")
        result = run(pytester, "--lf", "--onnxq-unused", "delete")
        result.assert_outcomes(failed=1)
        self.check(result, stray)

    def test_interrupted(self, pytester: pytest.Pytester, stray: Path) -> None:
        pytester.makeconftest(
            """
            def pytest_runtest_call(item):
                if item.name == "runs[onnxq]":
                    raise KeyboardInterrupt
            """
        )
        result = pytester.runpytest_subprocess(*CORPUS, "--onnxq-unused", "delete")
        assert result.ret == pytest.ExitCode.INTERRUPTED
        self.check(result, stray)

    def test_an_item_that_never_got_to_its_check(self, pytester: pytest.Pytester, stray: Path) -> None:
        pytester.makeconftest(
            """
            def pytest_runtest_setup(item):
                assert item.name != "runs[onnxq]"
            """
        )
        result = run(pytester, "--onnxq-unused", "delete")
        result.assert_outcomes(passed=CHECKS - 1, failed=1, errors=1)
        self.check(result, stray)

    def test_a_whole_case_by_its_path_is_judged(self, pytester: pytest.Pytester, stray: Path) -> None:
        run(pytester, "corpus/net", "--onnxq-unused", "delete").assert_outcomes(passed=CHECKS)
        assert not stray.exists()


def test_xdist(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    """Two cases whose golden is unused; of one not every check is run."""
    files = [refusal(f"corpus/{name}") / "expected" / "placement.txt" for name in ("one", "two")]
    for file in files:
        file.parent.mkdir()
        file.write_text("x\n")
    args = ("-n", "2", "-p", "no:cacheprovider", "--onnxq-unused", "delete", "-k", "not two")
    result = pytester.runpytest_subprocess(*CORPUS, *args)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*--dist loadfile*", "goldens unused, deleted: 1", "    corpus/one/expected/placement.txt"]
    )
    assert [file.exists() for file in files] == [False, True]
