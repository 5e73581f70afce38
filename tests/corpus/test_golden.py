from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxq.corpus.case import Case, load_case
from onnxq.corpus.format import GOLDEN_KINDS
from onnxq.corpus.golden import compare_golden, golden_checks, golden_path, read_golden, unused_goldens
from onnxq.corpus.golden_text import display_name, golden_text, within_tolerance
from onnxq.corpus.run import CaseRun, run_case
from onnxq.errors import CorpusError
from onnxq.invariants import ModelPair
from onnxq.quantizers import OnnxqQuantizer

HEAD = 'schema = 1\ntitle = "a title"\nsource = "made up"\n{extra}\n[model]\nbuilder = "residual.identity"\n'

MakeCase = Callable[..., Case]


@pytest.fixture
def make_case(tmp_path: Path) -> MakeCase:
    def make(extra: str = "", tail: str = "") -> Case:
        folder = tmp_path / "case"
        folder.mkdir(exist_ok=True)
        (folder / "case.toml").write_text(HEAD.format(extra=extra) + tail)
        return load_case(folder / "case.toml")

    return make


@pytest.fixture
def run(make_case: MakeCase) -> CaseRun:
    return run_case(make_case(), OnnxqQuantizer())


def lines(pair: ModelPair, kind: str = "placement") -> list[str]:
    return golden_text(pair, kind).splitlines()[1:]  # type: ignore[arg-type]


class TestPlacement:
    def test_it_is_the_placement_of_the_quantized_model(self, run: CaseRun) -> None:
        expected = [
            f"{label.output} = {label.op_type} input {edge.input} {label.tensor}: "
            + ("int8" if decision.axis is None else f"int8 per axis {decision.axis}")
            for edge, decision in run.pair.plan.placement.items()
            for label in [run.pair.plan.placement.labels[edge]]
            if decision.quantize
        ]
        assert len(expected) > 5
        assert lines(run.pair) == expected

    def test_names_of_nodes_and_of_inserted_tensors_dont_count(self, run: CaseRun) -> None:
        assert run.quantized is not None
        renamed = onnx.ModelProto()
        renamed.CopyFrom(run.quantized)
        kept = {name for n in run.pair.float_model.graph.node for name in (*n.input, *n.output)}
        for number, node in enumerate(renamed.graph.node):
            node.name = f"node{number}"
            for names in (node.input, node.output):
                names[:] = [name if name in kept or not name else f"other_{name}" for name in names]
        for tensor in renamed.graph.initializer:
            tensor.name = tensor.name if tensor.name in kept else f"other_{tensor.name}"
        assert golden_text(ModelPair(run.pair.float_model, renamed), "placement") == golden_text(run.pair, "placement")

    def test_an_unquantized_model(self, run: CaseRun) -> None:
        pair = ModelPair(run.pair.float_model, run.pair.float_model)
        assert [lines(pair, kind) for kind in ("placement", "ranges")] == [[], []]
        assert lines(pair, "shapes")

    @pytest.mark.parametrize(
        ("zero_point", "stored", "found"),
        [("int8", False, "int8"), ("uint8", False, "uint8"), (None, False, "uint8"), (None, True, "int8")],
    )
    def test_element_types(self, zero_point: str | None, stored: bool, found: str) -> None:
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        weight = np.ones((4, 4), np.float32)
        float_model = one_node(node, [numpy_helper.from_array(weight, "w")])
        zero = [] if zero_point is None else [numpy_helper.from_array(np.array(0, zero_point), "zero")]
        scale = numpy_helper.from_array(np.array(0.1, np.float32), "scale")
        parameters = ["scale", *(t.name for t in zero)]
        if stored:
            weight_tensor = numpy_helper.from_array(weight.astype(np.int8), "w_int")
            pair = [helper.make_node("DequantizeLinear", ["w_int", *parameters], ["w_dq"])]
        else:
            weight_tensor = numpy_helper.from_array(weight, "w")
            pair = [
                helper.make_node("QuantizeLinear", ["w", *parameters], ["w_q"]),
                helper.make_node("DequantizeLinear", ["w_q", *parameters], ["w_dq"]),
            ]
        quantized = one_node(helper.make_node("MatMul", ["x", "w_dq"], ["y"]), [weight_tensor, scale, *zero], pair)
        assert lines(ModelPair(float_model, quantized)) == [f"y = MatMul input 1 w: {found}"]


def one_node(
    node: onnx.NodeProto, tensors: list[onnx.TensorProto], before: list[onnx.NodeProto] | None = None
) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in ("x", "y")]
    graph = helper.make_graph([*(before or []), node], "g", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_shapes_hold_inputs_outputs_and_values(run: CaseRun) -> None:
    found = lines(run.pair, "shapes")
    assert found[0].startswith("input x: float[batch, ")
    assert found[1] == "output y: float[batch, 32, 16, 16]"
    assert len(found) == 2 + len(run.pair.float_model.graph.node) - 1
    assert all(line.startswith("value ") for line in found[2:])


def test_ranges_hold_a_scale_for_each_quantized_tensor(run: CaseRun) -> None:
    found = lines(run.pair, "ranges")
    quantized = {line.split(" input ")[1].split(" ")[1].rstrip(":") for line in lines(run.pair)}
    assert {line.split(" ")[0].rstrip(":") for line in found} == quantized
    assert any(" per axis 0: " in line and " to " in line for line in found)


TITLE = "# onnxq ranges, schema 1, relative tolerance {}\n"


class TestTolerance:
    @given(st.floats(1e-6, 1e6), st.floats(-0.2, 0.2))
    def test_numbers_within_it_are_as_in_the_file(self, value: float, change: float) -> None:
        expected = TITLE.format(0.1) + f"x: {value:.9g}\n"
        actual = TITLE.format(0.05) + f"x: {value * (1 + change):.9g}\n"
        found = within_tolerance(expected, actual)
        if abs(change) < 0.0999:
            assert found == expected
        elif abs(change) > 0.1001:
            assert found == TITLE.format(0.1) + actual.splitlines(keepends=True)[1]

    @pytest.mark.parametrize("now", ["x: 1 to 2", "x: computed", "x: 1, zero point not 0", "z: 1", "x per axis 0: 1"])
    def test_anything_else_counts(self, now: str) -> None:
        assert within_tolerance(TITLE.format(9) + "x: 1\n", f"title\n{now}\n").splitlines()[1:] == [now]

    def test_a_first_line_that_states_none(self) -> None:
        assert within_tolerance("# ranges\nx: 1\n", TITLE.format(1) + "x: 1.01\n") == TITLE.format(1) + "x: 1.01\n"

    def test_in_a_case(self, run: CaseRun) -> None:
        assert compare_golden(run, "onnxq", "golden-ranges", "new").written
        path = golden_path(run.case, "onnxq", "ranges")
        title, first, *others = path.read_text().splitlines()
        tensor, _, number = first.rpartition(": ")
        for factor, state in ((1.04, "same"), (1.06, "changed")):
            path.write_text("\n".join([title, f"{tensor}: {float(number) * factor}", *others]) + "\n")
            assert compare_golden(run, "onnxq", "golden-ranges").state == state
        path.write_text(path.read_text().replace("tolerance 0.05", "tolerance 0.5"))
        assert compare_golden(run, "onnxq", "golden-ranges", "all").state == "same"
        assert "tolerance 0.5\n" in path.read_text()


@given(st.text(min_size=1))
def test_a_name_is_one_visible_word(name: str) -> None:
    shown = display_name(name)
    assert shown.isprintable()
    assert shown == name or shown.startswith('"')


def test_different_names_look_different() -> None:
    names = ["a", '"a"', "a b", "a\tb", "a\\tb", "a\u202eb", "é", ""]
    assert len({display_name(name) for name in names}) == len(names)


class TestChecks:
    def test_listed_or_there(self, make_case: MakeCase) -> None:
        case = make_case('goldens = ["shapes"]')
        assert golden_checks(case, "onnxq") == golden_checks(case, "onnxq", "all") == ("golden-shapes",)
        golden_path(case, "onnxq", "ranges").parent.mkdir()
        golden_path(case, "onnxq", "ranges").touch()
        assert golden_checks(case, "onnxq") == ("golden-shapes", "golden-ranges")
        assert golden_checks(case, "toy") == ("golden-shapes",)

    def test_a_refusal_lists_none(self, make_case: MakeCase) -> None:
        tail = '[expect]\nraises = "UsageError"\n'
        assert golden_checks(make_case("", tail), "onnxq", "all") == ()
        with pytest.raises(CorpusError, match="goldens: a case that raises has no result"):
            make_case('goldens = ["shapes"]', tail)

    def test_unknown_kinds(self, make_case: MakeCase) -> None:
        with pytest.raises(CorpusError, match=r"goldens\[0\]: expected one of 'placement', 'shapes', 'ranges'"):
            make_case('goldens = ["scales"]')


class TestFiles:
    def test_every_kind_is_written_once_and_then_the_same(self, run: CaseRun) -> None:
        for kind in GOLDEN_KINDS:
            check = f"golden-{kind}"
            first = compare_golden(run, "onnxq", check, "new")
            assert (first.state, first.written, first.path.read_text()) == ("new", True, first.actual)
            again = compare_golden(run, "onnxq", check, "all")
            assert (again.state, again.written) == ("same", False)
        assert not [p for p in first.path.parent.iterdir() if p.suffix != ".txt"]

    def test_permissions_are_the_usual_ones(self, run: CaseRun) -> None:
        written = compare_golden(run, "onnxq", "golden-placement", "new").path
        usual = written.with_name("usual")
        usual.touch()
        assert stat.S_IMODE(written.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)

    def test_line_ends_dont_count(self, run: CaseRun) -> None:
        path = compare_golden(run, "onnxq", "golden-placement", "new").path
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        assert compare_golden(run, "onnxq", "golden-placement").state == "same"

    @pytest.mark.parametrize("name", ["../../evil", "/etc", "a b|c", "..", "", "command:x {input}"])
    def test_no_name_of_a_quantizer_leads_out_of_the_folder(self, make_case: MakeCase, name: str) -> None:
        case = make_case()
        path = golden_path(case, name, "placement")
        assert Path(os.path.normpath(path)) == path
        assert path.parent.parent == case.folder / "expected"

    @pytest.mark.parametrize("content", [b"\xff", b"x" * (5 * 2**20)], ids=["no text", "too big"])
    def test_files_that_are_no_golden(self, make_case: MakeCase, content: bytes) -> None:
        case = make_case()
        path = golden_path(case, "onnxq", "placement")
        path.parent.mkdir()
        path.write_bytes(content)
        with pytest.raises(CorpusError, match=r"placement\.txt: "):
            read_golden(case, path)

    def test_links(self, make_case: MakeCase, tmp_path: Path) -> None:
        case = make_case()
        path = golden_path(case, "onnxq", "placement")
        path.parent.mkdir()
        for target in (tmp_path / "outside", Path("placement.txt"), tmp_path / "outside.txt"):
            (tmp_path / "outside.txt").touch()
            path.symlink_to(target)
            with pytest.raises(CorpusError, match=r"leads out|can't be read|no regular file"):
                read_golden(case, path)
            path.unlink()

    def test_a_folder_outside_is_not_written_to(self, run: CaseRun, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (run.case.folder / "expected").symlink_to(outside)
        with pytest.raises(CorpusError, match="leads out of the folder of the case"):
            compare_golden(run, "onnxq", "golden-placement", "new")
        assert not list(outside.iterdir())


def test_unused(make_case: MakeCase) -> None:
    case = make_case()
    for name in ("placement.txt", "notes.md", "toy/placement.txt", "toy/x.txt", "toy/deeper/placement.txt"):
        path = case.folder / "expected" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def unused(*quantizers: str) -> list[str]:
        found = unused_goldens(case, quantizers)
        return [path.relative_to(case.folder / "expected").as_posix() for path in found]

    strays = ["notes.md", "toy/deeper/placement.txt", "toy/x.txt"]
    assert unused("onnxq", "toy") == unused("onnxq") == unused("toy") == strays
    refusal = replace(case, definition=make_case("", '[expect]\nraises = "UsageError"\n').definition)
    assert len(unused_goldens(refusal, ["onnxq"])) == len(strays) + 1
    assert len(unused_goldens(refusal, ["onnxq", "toy"])) == len(strays) + 2


def test_a_diff_is_capped(run: CaseRun) -> None:
    found = compare_golden(run, "onnxq", "golden-placement")
    assert "more lines" not in found.diff(1000)
    capped = found.diff(3).splitlines()
    assert len(capped) == 4
    assert capped[-1] == f"... {len(found.diff(1000).splitlines()) - 3} more lines"
