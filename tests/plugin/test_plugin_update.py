from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxq.corpus.checks import check_names
from onnxq.corpus.format import Expect

MakeNetwork = Callable[..., Path]
MakeRefusal = Callable[..., Path]

CHECKS = len(check_names(Expect()))
"""How many checks a case has that expects nothing in particular."""

GOLDEN = "expected/placement.txt"
ALL_FLOAT = '[quantize]\nop_types_to_exclude = ["Conv", "Gemm", "MatMul"]\n'

CORPUS = ("--onnxq-corpus", "corpus", "-k", "golden")


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest(*CORPUS, *args)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def accepted(pytester: pytest.Pytester, network: MakeNetwork) -> Path:
    """A case whose golden was written."""
    folder = network("corpus/net")
    run(pytester, "--onnxq-update", "new").assert_outcomes(passed=1, deselected=CHECKS)
    return folder


@pytest.fixture
def changed(accepted: Path) -> Path:
    """The same, quantized in another way since."""
    case = accepted / "case.toml"
    case.write_text(case.read_text() + ALL_FLOAT)
    return accepted


def test_no_golden_no_check_unless_one_is_asked_for(pytester: pytest.Pytester, network: MakeNetwork) -> None:
    folder = network("corpus/net")
    for update in ("none", "changed"):
        assert run(pytester, "--onnxq-update", update).parseoutcomes() == {"deselected": CHECKS}
    assert files(folder) == {"case.toml"}


@pytest.mark.parametrize("update", ["new", "all"])
def test_a_new_golden(pytester: pytest.Pytester, network: MakeNetwork, update: str) -> None:
    folder = network("corpus/net")
    result = run(pytester, "--onnxq-update", update)
    result.assert_outcomes(passed=1, deselected=CHECKS)
    result.stdout.fnmatch_lines(["goldens new, written: 1", f"    corpus/net/{GOLDEN}"])
    assert files(folder) == {"case.toml", GOLDEN}
    title, *lines = (folder / GOLDEN).read_text().splitlines()
    assert title == "# onnxq placement, schema 1"
    assert lines
    assert all(" = " in line and ": int8" in line for line in lines)
    run(pytester).assert_outcomes(passed=1, deselected=CHECKS)


def test_a_listed_golden_must_be_there(pytester: pytest.Pytester, network: MakeNetwork) -> None:
    folder = network("corpus/net")
    case = folder / "case.toml"
    case.write_text(case.read_text().replace("tags =", 'goldens = ["placement", "shapes", "ranges"]\ntags ='))
    for update in ("none", "changed"):
        result = run(pytester, "--onnxq-update", update)
        result.assert_outcomes(failed=3, deselected=CHECKS)
        result.stdout.fnmatch_lines(
            [
                f'there is no corpus/net/{GOLDEN} yet; "+" is what onnxq * makes',
                "+# onnxq placement, schema 1",
                "accept: pytest 'corpus/net/case.toml::golden-placement[[]onnxq]' --onnxq-update=new",
                "goldens new, not accepted: 3",
                "to accept the goldens, after a look: pytest * --onnxq-update=new",
            ]
        )
    run(pytester, "--onnxq-update", "new").assert_outcomes(passed=3, deselected=CHECKS)
    run(pytester).assert_outcomes(passed=3, deselected=CHECKS)
    assert files(folder) == {"case.toml", *(f"expected/{kind}.txt" for kind in ("placement", "shapes", "ranges"))}


@pytest.mark.parametrize("update", ["none", "new"])
def test_a_changed_golden_fails_and_stays(pytester: pytest.Pytester, changed: Path, update: str) -> None:
    before = (changed / GOLDEN).read_text()
    result = run(pytester, "--onnxq-update", update)
    result.assert_outcomes(failed=1, deselected=CHECKS)
    result.stdout.fnmatch_lines(
        [
            f'"-" is corpus/net/{GOLDEN}, "+" is what onnxq * makes now',
            "--- expected",
            "+++ actual",
            "-* = Conv input 0 *: int8",
            "actual: *placement.txt",
            "accept: pytest 'corpus/net/case.toml::golden-placement[[]onnxq]' --onnxq-update=changed",
            "goldens changed, not accepted: 1",
            "to accept the goldens, after a look: pytest --onnxq-corpus corpus -k golden * --onnxq-update=changed",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    assert (changed / GOLDEN).read_text() == before


@pytest.mark.parametrize("update", ["changed", "all"])
def test_a_changed_golden_is_accepted(pytester: pytest.Pytester, changed: Path, update: str) -> None:
    result = run(pytester, "--onnxq-update", update)
    result.assert_outcomes(passed=1, deselected=CHECKS)
    result.stdout.fnmatch_lines(["goldens changed, written: 1", f"    corpus/net/{GOLDEN}"])
    assert "Conv" not in (changed / GOLDEN).read_text()
    run(pytester).assert_outcomes(passed=1, deselected=CHECKS)


def test_the_actual_file_and_the_command(pytester: pytest.Pytester, changed: Path) -> None:
    """What the failure names is what is there, also from another folder; accepting it removes the file."""
    folder = pytester.mkdir("elsewhere")
    pytester.makeini("[pytest]")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.chdir(folder)
    try:
        lines = pytester.runpytest("../corpus/net/case.toml").outlines
        actual = folder / next(line for line in lines if line.startswith("actual: ")).removeprefix("actual: ")
        accept = next(line for line in lines if line.startswith("accept: ")).removeprefix("accept: pytest ")
        assert actual.is_file()
        assert not actual.resolve().is_relative_to(changed)
        expected = actual.read_text()
        pytester.runpytest(*shlex.split(accept)).assert_outcomes(passed=1)
    finally:
        monkeypatch.undo()
    assert (changed / GOLDEN).read_text() == expected
    assert not actual.exists()


def test_without_a_cache_the_actual_file_is_elsewhere(pytester: pytest.Pytester, changed: Path) -> None:
    result = run(pytester, "-p", "no:cacheprovider")
    actual = next(line for line in result.outlines if line.startswith("actual: ")).removeprefix("actual: ")
    assert (pytester.path / actual).is_file()
    assert files(changed) == {"case.toml", GOLDEN}


def test_a_long_difference_is_capped(pytester: pytest.Pytester, accepted: Path) -> None:
    with (accepted / GOLDEN).open("a") as file:
        file.writelines(f"t{number} = Conv input 0 x: int8\n" for number in range(1000))
    result = run(pytester)
    result.stdout.fnmatch_lines(["... 9* more lines"])
    assert len(result.outlines) < 100


def test_goldens_of_other_quantizers_are_apart(
    pytester: pytest.Pytester, accepted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(toy="def quantize(model, calibration_data, options):\n    return model\n")
    monkeypatch.syspath_prepend(pytester.path)
    both = ("--onnxq-quantizer", "onnxq", "--onnxq-quantizer", "toy=python:toy:quantize")
    run(pytester, *both).assert_outcomes(passed=1, deselected=2 * CHECKS)
    run(pytester, *both, "--onnxq-update", "new").assert_outcomes(passed=2, deselected=2 * CHECKS)
    assert files(accepted) == {"case.toml", GOLDEN, "expected/toy/placement.txt"}
    assert (accepted / "expected/toy/placement.txt").read_text() == "# onnxq placement, schema 1\n"
    (accepted / "expected/toy/placement.txt").write_text("another\n")
    result = run(pytester, *both)
    result.assert_outcomes(passed=1, failed=1, deselected=2 * CHECKS)
    result.stdout.fnmatch_lines(["accept: pytest * --onnxq-quantizer=toy=python:toy:quantize --onnxq-update=changed"])


def test_a_known_failure_is_never_accepted(pytester: pytest.Pytester, changed: Path) -> None:
    case = changed / "case.toml"
    known = '[[known_failure]]\nquantizer = "onnxq"\ncheck = "golden-placement"\nreason = "forgets the Conv"\n'
    case.write_text(case.read_text() + known)
    before = (changed / GOLDEN).read_text()
    result = run(pytester, "--onnxq-update", "all")
    result.assert_outcomes(xfailed=1, deselected=CHECKS)
    assert (changed / GOLDEN).read_text() == before
    result.stdout.no_fnmatch_line("to accept*")


def test_a_refusal_has_no_golden(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    folder = refusal("corpus/x")
    pytester.runpytest("--onnxq-corpus", "corpus", "--onnxq-update", "all").assert_outcomes(passed=1)
    assert files(folder) == {"case.toml", "model.onnx"}


def test_a_failed_quantization_writes_nothing(pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
    folder = refusal("corpus/x")
    case = folder / "case.toml"
    case.write_text(case.read_text().split("[expect]")[0])
    result = run(pytester, "--onnxq-update", "all")
    result.assert_outcomes(failed=1, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(["quantization failed: InvalidModelError: *"])
    assert files(folder) == {"case.toml", "model.onnx"}


def test_a_golden_outside_of_the_case_is_neither_read_nor_written(pytester: pytest.Pytester, accepted: Path) -> None:
    secret = pytester.path / "secret.txt"
    secret.write_text("secret words\n")
    (accepted / GOLDEN).unlink()
    (accepted / GOLDEN).symlink_to(secret)
    result = run(pytester, "--onnxq-update", "all")
    result.assert_outcomes(failed=1, deselected=CHECKS)
    result.stdout.fnmatch_lines(["*placement.txt: leads out of the folder of the case"])
    result.stdout.no_fnmatch_line("*secret words*")
    assert secret.read_text() == "secret words\n"


def test_xdist_loses_nothing(pytester: pytest.Pytester, changed: Path, network: MakeNetwork) -> None:
    folders = [network(f"corpus/net{number}") for number in range(4)]
    args = (*CORPUS, "-n", "2", "-p", "no:cacheprovider", "--onnxq-update", "new")
    result = pytester.runpytest_subprocess(*args)
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(
        [
            "goldens new, written: 4",
            *(f"    corpus/net{number}/{GOLDEN}" for number in range(4)),
            "goldens changed, not accepted: 1",
            f"    corpus/net/{GOLDEN}",
        ]
    )
    assert len({(folder / GOLDEN).read_text() for folder in folders}) == 1


class TestContinuousIntegration:
    @pytest.fixture(autouse=True)
    def ci(self, monkeypatch: pytest.MonkeyPatch, outside_ci: None, network: MakeNetwork) -> None:
        monkeypatch.setenv("CI", "true")
        network("corpus/net")

    @pytest.mark.parametrize(
        ("args", "said"),
        [
            (["--onnxq-update", "new"], "--onnxq-update new"),
            (["--onnxq-unused", "delete"], "--onnxq-unused delete"),
            (["--onnxq-update", "all", "--onnxq-unused", "delete"], "--onnxq-update all and --onnxq-unused delete"),
        ],
    )
    def test_writing_is_refused(self, pytester: pytest.Pytester, args: list[str], said: str) -> None:
        result = run(pytester, *args)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"ERROR: {said}: *CI is set*--onnxq-update-in-ci"])
        assert files(pytester.path / "corpus") == {"net/case.toml"}

    def test_unless_it_is_asked_for(self, pytester: pytest.Pytester) -> None:
        run(pytester, "--onnxq-update", "new", "--onnxq-update-in-ci").assert_outcomes(passed=1, deselected=CHECKS)
        pytester.makeini("[pytest]\nonnxq_update_in_ci = true")
        run(pytester, "--onnxq-update", "changed").assert_outcomes(passed=1, deselected=CHECKS)

    def test_comparing_is_allowed(self, pytester: pytest.Pytester) -> None:
        assert run(pytester).ret == pytest.ExitCode.NO_TESTS_COLLECTED

    def test_the_ini_file_is_no_way_around(self, pytester: pytest.Pytester) -> None:
        pytester.makeini("[pytest]\nonnxq_update = new")
        assert run(pytester).ret == pytest.ExitCode.USAGE_ERROR
        assert run(pytester, "--onnxq-update", "none").ret == pytest.ExitCode.NO_TESTS_COLLECTED

    @pytest.mark.parametrize("value", ["", "0", "false"])
    def test_ci_is_not_set(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        monkeypatch.setenv("CI", value)
        run(pytester, "--onnxq-update", "new").assert_outcomes(passed=1, deselected=CHECKS)


def test_a_wrong_value(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--onnxq-update", "yes")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(['ERROR: --onnxq-update: "yes" is none of none, new, changed, all'])
