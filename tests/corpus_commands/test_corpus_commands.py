"""`onnxq corpus add|list|run|strip`, as people type them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxq.cli import main
from onnxq.corpus.case import load_case
from onnxq.corpus.write import case_text
from onnxq_builders import build

BROKEN = 'schema = 1\ntitle = "t"\nsource = "s"\n[model]\nfile = "model.onnx"\n'


@dataclass(frozen=True)
class Run:
    status: int
    out: str
    err: str


Command = Callable[..., Run]


@pytest.fixture
def corpus(capsys, tmp_path, monkeypatch) -> Command:
    """Runs `onnxq corpus ...` in a folder with `float.onnx` and an empty corpus `own`."""
    monkeypatch.chdir(tmp_path)
    onnx.save(build("residual.convtranspose_conv"), tmp_path / "float.onnx")
    (tmp_path / "own").mkdir()

    def run(line: str, *more: str) -> Run:
        capsys.readouterr()
        status = main(["corpus", *line.split(), *more])
        return Run(status, *capsys.readouterr())

    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


class TestAdd:
    def test_a_case_is_made_and_passes(self, corpus: Command, tmp_path: Path) -> None:
        result = corpus("add float.onnx --to own --name residual/mine --tags a b", "--title", 'Quotes " and \\ back')
        assert (result.status, result.err) == (0, "")
        folder = tmp_path / "own/residual/mine"
        assert sorted(contents(folder)) == ["case.toml", "expected/placement.txt", "model.onnx"]
        case = load_case(folder / "case.toml")
        assert case.definition.title == 'Quotes " and \\ back'
        assert case.definition.tags == ["a", "b"]
        assert case.expect.quantized_add_inputs == {"add": ["skip"]}
        assert case.expect.outputs == {"y": ["batch", 32, 16, 16]}
        assert "observed with onnxq" in case.definition.source
        assert "float.onnx, sha256" in case.path.read_text()
        assert case.load_model() == onnx.load("float.onnx")
        assert corpus("run own").status == 0

    def test_stripped_renamed_and_anonymous(self, corpus: Command, tmp_path: Path) -> None:
        model = onnx.load("float.onnx")
        model.graph.node[0].doc_string = "/home/me/secret.py"
        onnx.save(model, "confidential.onnx")
        np.savez("data.npz", x=np.ones((2, 32, 8, 8), np.float32))
        line = "add confidential.onnx --to own --name f/c --strip-weights --above 16 --rename --anonymous"
        assert corpus(f"{line} --calibration-data data.npz").status == 0
        folder = tmp_path / "own/f/c"
        everything = b"".join(contents(folder).values())
        for word in (b"secret", b"confidential", b"upsample", b"skip", b"sha256"):
            assert word not in everything
        assert (folder / "model.onnx").stat().st_size < Path("float.onnx").stat().st_size / 5
        assert corpus("run own").status == 0

    def test_the_policy_of_the_quantizer_counts(self, corpus: Command, tmp_path: Path) -> None:
        result = corpus("add float.onnx --to own --name f/c --quantizer onnxq@onnxruntime --known-failures")
        assert result.status == 0
        expect = load_case(tmp_path / "own/f/c/case.toml").expect
        assert expect.quantized_add_inputs is None
        assert all(policy.when == "onnxruntime" for policy in expect.policy)

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("add float.onnx --to own --name mine", "give FAMILY/CASE"),
            ("add float.onnx --to own --name ../x/y", "give FAMILY/CASE"),
            ("add float.onnx --to own --name ../x", "give FAMILY/CASE"),
            ("add float.onnx --to nowhere --name a/b", "no such folder"),
            ("add missing.onnx --to own --name a/b", "no such file"),
            ("add float.onnx --to own --name a/b --quantizer nobody", 'quantizer "nobody"'),
            ("add float.onnx --to own --name a/b --calibration-data none.npz", "can't be read"),
            ("add float.onnx --to own --name a/b --op_types_to_exclude Blub", "Blub"),
            ("add float.onnx --to own --name a/b --above 3 --strip-weights", "at least 16"),
        ],
    )
    def test_what_goes_wrong_is_one_line_and_leaves_nothing(
        self, corpus: Command, tmp_path: Path, line: str, message: str
    ) -> None:
        before = contents(tmp_path)
        result = corpus(line)
        assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
        assert message in result.err
        assert ".onnxq-" not in result.err
        assert contents(tmp_path) == before
        assert list((tmp_path / "own").iterdir()) == []

    def test_nothing_is_overwritten(self, corpus: Command, tmp_path: Path) -> None:
        assert corpus("add float.onnx --to own --name a/b").status == 0
        before = contents(tmp_path)
        result = corpus("add float.onnx --to own --name a/b --strip-weights")
        assert result.status == 2
        assert "exists already" in result.err
        assert contents(tmp_path) == before

    def test_a_quantizer_that_fails_can_be_written_down(
        self, corpus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "badquant.py").write_text(
            "def crash(model, feeds, options):\n    raise ZeroDivisionError('oh')\n"
            "def same(model, feeds, options):\n"
            "    model.graph.node[0].name = model.graph.node[1].name\n    return model\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        for function, check in (("crash", "quantizes"), ("same", "unique-names")):
            line = f"add float.onnx --to own --name a/{function} --quantizer python:badquant:{function}"
            refused = corpus(line)
            assert refused.status == 2
            assert "--known-failures" in refused.err
            assert corpus(f"{line} --known-failures").status == 0
            known = load_case(tmp_path / f"own/a/{function}/case.toml").definition.known_failure
            assert check in [k.check for k in known]
            run = corpus(f"run own/a/{function} --quantizer python:badquant:{function}")
            assert (run.status, "known" in run.out) == (0, True)
        assert corpus("run own/a/crash").status == 0, "onnxq passes the case that another tool fails"

    def test_a_refusal_can_be_expected(self, corpus: Command, tmp_path: Path) -> None:
        model = onnx.load("float.onnx")
        model.graph.node[0].op_type = "Cnv"
        onnx.save(model, "broken.onnx")
        assert "--refusal" in corpus("add broken.onnx --to own --name a/b").err
        assert corpus("add broken.onnx --to own --name a/b --refusal").status == 0
        assert load_case(tmp_path / "own/a/b/case.toml").expect.raises == "InvalidModelError"


class TestListAndRun:
    def test_list(self, corpus: Command) -> None:
        everything = json.loads(corpus("list --json").out)
        assert len(everything) > 100
        tagged = json.loads(corpus("list --json --tag founding").out)
        assert {c["id"] for c in tagged} < {c["id"] for c in everything}
        assert all("founding" in c["tags"] for c in tagged)
        assert "residual/identity " in corpus("list builtin").out

    def test_run_prints_a_table(self, corpus: Command) -> None:
        result = corpus("run builtin -k residual/identity --quantizer onnxq --only valid runs")
        assert result.status == 0
        header, *rows, total = result.out.splitlines()
        assert header.split() == ["case", "onnxq"]
        assert all(row.endswith("2 passed") for row in rows)
        assert total == f"{len(rows)} cases, checks: {2 * len(rows)} passed"

    def test_a_failure_is_shown_and_is_status_1(self, corpus: Command, tmp_path: Path) -> None:
        corpus("add float.onnx --to own --name a/b")
        file = tmp_path / "own/a/b/case.toml"
        file.write_text(file.read_text().replace('add = ["skip"]', 'add = ["bn2"]'))
        result = corpus("run own -q")
        assert result.status == 1
        assert 'found:    "skip"' in result.out
        assert "a/b: quantized-add-inputs of onnxq" in result.out
        found = json.loads(corpus("run own --json").out)
        assert [o["check"] for o in found if o["status"] == "failed"] == ["quantized-add-inputs"]

    def test_a_changed_golden_is_a_diff(self, corpus: Command, tmp_path: Path) -> None:
        corpus("add float.onnx --to own --name a/b")
        golden = tmp_path / "own/a/b/expected/placement.txt"
        first, *rest = golden.read_text().splitlines(keepends=True)
        golden.write_text(first + "".join(rest[1:]))
        result = corpus("run own")
        assert result.status == 1
        assert "+" + rest[0].rstrip() in result.out

    def test_an_unexpected_pass_fails(self, corpus: Command, tmp_path: Path) -> None:
        corpus("add float.onnx --to own --name a/b")
        with (tmp_path / "own/a/b/case.toml").open("a") as file:
            file.write('[[known_failure]]\nquantizer = "onnxq"\ncheck = "valid"\nreason = "why"\n')
        result = corpus("run own --only valid")
        assert result.status == 1
        assert "delete that entry" in result.out

    def test_an_unreadable_case_is_status_2_and_the_others_run(self, corpus: Command, tmp_path: Path) -> None:
        corpus("add float.onnx --to own --name a/b")
        (tmp_path / "own/a/c").mkdir()
        (tmp_path / "own/a/c/case.toml").write_text(BROKEN)
        result = corpus("run own --only valid")
        assert result.status == 2
        assert 'there is no file "model.onnx"' in result.out
        assert "a/b   1 passed" in result.out
        assert corpus("list own").status == 2

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("run nowhere", "no such path"),
            ("run own", "no case.toml"),
            ("run -k nothing", 'no case matches "nothing"'),
            ("run --only valdi", 'did you mean "valid"'),
            ("run --tag nothing", "no case has"),
            ("run --quantizer onxq", 'did you mean "onnxq"'),
            ("rnu", "invalid choice"),
            ("list --jsno", "did you mean --json?"),
        ],
    )
    def test_wrong_usage_is_one_line(self, corpus: Command, line: str, message: str) -> None:
        result = corpus(line)
        assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
        assert message in result.err

    def test_what_a_terminal_would_obey_is_escaped(self, corpus: Command, tmp_path: Path) -> None:
        folder = tmp_path / "own/a/b"
        folder.mkdir(parents=True)
        model = onnx.load("float.onnx")
        model.graph.output[0].name = model.graph.node[-1].output[0] = "\x1b]0;owned\x07y"
        onnx.save(model, folder / "model.onnx")
        (folder / "case.toml").write_text(
            case_text(
                {
                    "schema": 1,
                    "title": "\x1b[2J",
                    "source": "s",
                    "model": {"file": "model.onnx"},
                    "expect": {"outputs": {"\x1b]0;owned\x07y": [1]}},
                }
            )
        )
        for line in ("run own", "list own"):
            out = corpus(line).out
            assert "\\x1b" in out
            assert "\x1b" not in out


class TestStrip:
    def test_a_stripped_model_is_small_and_works(self, corpus: Command) -> None:
        result = corpus("strip float.onnx -o small.onnx --above 16")
        assert result.status == 0
        assert "left out: 22,816 elements of 12 weights" in result.out
        assert Path("small.onnx").stat().st_size < Path("float.onnx").stat().st_size / 5
        assert main(["inspect", "small.onnx"]) == 0

    def test_filled_models_are_for_any_tool_and_the_same_as_recipes_make(self, corpus: Command) -> None:
        assert corpus("strip float.onnx -o small.onnx --above 16").status == 0
        assert corpus("strip float.onnx -o filled.onnx --above 16 --fill").status == 0
        assert corpus("strip small.onnx -o again.onnx --above 1000000 --fill").status == 0
        onnx.checker.check_model("filled.onnx")
        assert onnx.load("filled.onnx") == onnx.load("again.onnx")

    def test_the_model_itself_is_never_overwritten(self, corpus: Command) -> None:
        before = Path("float.onnx").read_bytes()
        assert corpus("strip float.onnx -o float.onnx").status == 2
        assert Path("float.onnx").read_bytes() == before


def test_case_text_is_what_tomllib_reads() -> None:
    content = {
        "schema": 1,
        "title": 'a "quoted" \\ text\n\t\x00\x1b\x7f ö 🦊',
        "tags": ["a", "b"],
        "model": {
            "builder": "x.y",
            "args": {"a b": True, "n": -3, "f": 1e-30, "big": 1e300, "nested": {"k": [1, [2]]}},
        },
        "expect": {"outputs": {"a.b/c": ["batch", 3], "": []}, "policy": [{"when": "onnxruntime", "runs": False}]},
        "known_failure": [{"check": "a"}, {"check": "b", "reason": "c"}],
    }
    assert tomllib.loads(case_text(content, comments=["one", "two\nthree"])) == content
