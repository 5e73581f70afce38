from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import onnxq_builders
from onnxq_builders import FIXTURE_BUILDERS

MakeRefusal = Callable[..., Path]


@pytest.mark.parametrize("stem", FIXTURE_BUILDERS)
def test_every_builder_has_a_fixture(request: pytest.FixtureRequest, stem: str) -> None:
    model = request.getfixturevalue(f"{stem}_model")
    assert model == getattr(onnxq_builders, stem)()


def test_fixtures_are_listed_with_what_they_are(pytester: pytest.Pytester) -> None:
    lines = pytester.runpytest("--fixtures").outlines
    for name in (*(f"{stem}_model" for stem in FIXTURE_BUILDERS), "onnxq_quantize", "onnxq_quantizer", "onnxq_case"):
        (position,) = (number for number, line in enumerate(lines) if line.split(" ")[0] == name)
        assert lines[position + 1].startswith("    ")
        assert "no docstring" not in lines[position + 1]


def test_quantize(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from onnxq.testing import assert_exactly_one_quantized_add_input

        def test_model(convtranspose_conv_residual_model, onnxq_quantize):
            result = onnxq_quantize(convtranspose_conv_residual_model, op_types_to_exclude=["Gemm"])
            assert_exactly_one_quantized_add_input(result.model, "add", skip="skip")

        def test_quantizer(identity_block_model, onnxq_quantizer):
            model = onnxq_quantizer.quantize(identity_block_model, None, {})
            assert onnxq_quantizer.name == "onnxq"
            assert "QuantizeLinear" in {node.op_type for node in model.graph.node}
        """
    )
    result = pytester.runpytest("-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*::test_quantizer[[]onnxq] PASSED*"])


class TestMarker:
    @pytest.fixture(autouse=True)
    def corpus(self, pytester: pytest.Pytester, refusal: MakeRefusal) -> None:
        refusal("corpus/a/x", title="first")
        refusal("corpus/a/y", title="second")
        refusal("corpus/b/z", title="third")
        pytester.makeini("[pytest]\naddopts = --strict-markers -q")

    def run(self, pytester: pytest.Pytester, mark: str, *args: str, argument: str = "onnxq_case") -> pytest.RunResult:
        pytester.makepyfile(
            test_cases=f"""
            import pytest

            @pytest.mark.{mark}
            def test_it({argument}):
                print("ran", {argument}.definition.title)
            """
        )
        return pytester.runpytest("--onnxq-corpus", "corpus", "test_cases.py", "-rP", "-k", "test_it", *args)

    def test_patterns_choose_the_cases(self, pytester: pytest.Pytester) -> None:
        result = self.run(pytester, 'onnxq_cases("a/*")')
        result.assert_outcomes(passed=2, deselected=3)
        result.stdout.fnmatch_lines(["ran first", "ran second"])

    def test_all_cases_without_patterns(self, pytester: pytest.Pytester) -> None:
        self.run(pytester, "onnxq_cases").assert_outcomes(passed=3, deselected=3)
        one = ("--onnxq-corpus", "corpus", "-k", "test_it", "test_cases.py::test_it[b/z]")
        pytester.runpytest(*one).assert_outcomes(passed=1, deselected=3)

    def test_a_pattern_that_matches_nothing(self, pytester: pytest.Pytester) -> None:
        result = self.run(pytester, 'onnxq_cases("c/*")')
        result.assert_outcomes(errors=1, deselected=3)
        result.stdout.fnmatch_lines(['onnxq_cases: no case matches "c/[*]"; there are: a/x, a/y, b/z'])

    def test_the_argument_must_be_there(self, pytester: pytest.Pytester) -> None:
        result = self.run(pytester, "onnxq_cases", argument="request")
        result.stdout.fnmatch_lines(["*test_it: marked with onnxq_cases, so it must have an argument onnxq_case"])

    def test_the_marker_must_be_there(self, pytester: pytest.Pytester) -> None:
        result = self.run(pytester, "filterwarnings('default')")
        result.stdout.fnmatch_lines(["onnxq_case needs the marker @pytest.mark.onnxq_cases(...) on the test"])

    def test_a_broken_case(self, pytester: pytest.Pytester) -> None:
        pytester.path.joinpath("corpus/b/z/case.toml").write_text("schema = 2\n")
        result = self.run(pytester, 'onnxq_cases("b/*")')
        result.stdout.fnmatch_lines(["*corpus/b/z/case.toml: title: this key is missing"])
        result.stdout.no_fnmatch_line("*Traceback*")


class TestTags:
    @pytest.fixture(autouse=True)
    def corpus(self, pytester: pytest.Pytester, network: Callable[..., Path], refusal: MakeRefusal) -> None:
        network("corpus/a/x", title="first", tags=("residual", "swap"))
        network("corpus/b/y", title="second", tags=("residual",))
        refusal("corpus/b/z", title="third")

    def run(self, pytester: pytest.Pytester, *marks: str) -> pytest.RunResult:
        lines = "\n".join(f"@pytest.mark.{mark}" for mark in marks)
        source = f"import pytest\n{lines}\ndef test_it(onnxq_case):\n    print('ran', onnxq_case.definition.title)\n"
        pytester.makepyfile(test_cases=source)
        return pytester.runpytest("--onnxq-corpus", "corpus", "test_cases.py", "-rP", "-q", "-k", "test_it")

    @pytest.mark.parametrize(
        ("marks", "titles"),
        [
            (['onnxq_cases(tags=["residual"])'], ["first", "second"]),
            (['onnxq_cases(tags=["residual", "swap"])'], ["first"]),
            (['onnxq_cases("b/*", tags=["residual"])'], ["second"]),
            (['onnxq_cases("b/z")', 'onnxq_cases(tags=["swap"])'], ["first", "third"]),
        ],
    )
    def test_tags_and_patterns(self, pytester: pytest.Pytester, marks: list[str], titles: list[str]) -> None:
        result = self.run(pytester, *marks)
        assert [line.removeprefix("ran ") for line in result.outlines if line.startswith("ran ")] == titles

    def test_a_tag_that_no_case_has(self, pytester: pytest.Pytester) -> None:
        result = self.run(pytester, 'onnxq_cases("b/*", tags=["swap"])')
        result.stdout.fnmatch_lines(["""onnxq_cases: no case has the tags "swap" among those that match 'b/[*]'"""])

    @pytest.mark.parametrize("mark", ['onnxq_cases(tag=["swap"])', 'onnxq_cases(tags="swap")', "onnxq_cases(3)"])
    def test_wrong_arguments(self, pytester: pytest.Pytester, mark: str) -> None:
        result = self.run(pytester, mark)
        result.assert_outcomes(errors=1, deselected=result.parseoutcomes()["deselected"])
        result.stdout.fnmatch_lines(["onnxq_cases: takes patterns and tags=[[]...]; found *"])
