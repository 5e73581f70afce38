"""Each pass alone: what it changes, what it leaves, and that the samples go with the model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from reductions import after_edits, after_pass, always, asking, holds, node_of, op_counts, op_types, problem

from onnxq.reduce import (
    PASSES,
    ReductionProblem,
    problem_of,
    reduce_model,
)
from onnxq.reduce.branches import inlining_edits
from onnxq.reduce.interface import input_edits, operand_edits, output_edits
from onnxq.reduce.lengths import coarse_edits, length_edits
from onnxq.reduce.nodes import bypass_edits, cut_chunks, cut_ends, folding_edits
from onnxq.reduce.problem import BFLOAT16
from onnxq.reduce.simplify import attribute_edits, declaration_edits, kernel_edits, rename, weight_edits
from onnxq.reduce.subgraph import keep_nodes
from text_models import text_model

CHAIN = "a = Relu(x) b = Neg(a) c = Abs(b) d = Exp(c) e = Tanh(d) y = Sigmoid(e)"


def input_names(problem: ReductionProblem) -> list[str]:
    return [value.name for value in problem.model.graph.input]


def initializers(problem: ReductionProblem) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in problem.model.graph.initializer}


# cutting


def test_cut_ends_finds_the_shortest_run_by_bisection() -> None:
    asked: list[ReductionProblem] = []
    long = text_model(" ".join(f"t{n + 1} = {'Abs' if n == 40 else 'Relu'}(t{n})" for n in range(64)), "float[4] t0",
                      "float[4] t64")  # fmt: skip
    found = after_pass(cut_ends, problem(long), asking(holds("Abs"), asked))
    assert op_types(found) == ["Abs"]
    assert len(asked) <= 12


def test_cut_ends_keeps_what_the_fault_spans() -> None:
    found = after_pass(cut_ends, problem(text_model(CHAIN)), holds("Neg", "Exp"))
    assert op_types(found) == ["Neg", "Abs", "Exp"]


def test_cut_chunks_leaves_out_the_middle() -> None:
    found = after_pass(cut_chunks, problem(text_model(CHAIN)), holds("Relu", "Exp"))
    assert op_types(found) == ["Relu", "Exp"]
    assert len(found.model.graph.output) == 2


def test_cut_chunks_leaves_what_is_needed() -> None:
    whole = problem(text_model(CHAIN))
    assert after_pass(cut_chunks, whole, holds(*op_types(whole))) is whole


def test_a_cut_makes_an_input_whose_samples_are_what_it_held() -> None:
    whole = problem(text_model("a = Conv(x, w) b = Exp(a) y = Relu(b)"), samples=3)
    held = whole.observe(["b"])
    found = keep_nodes(whole, [2])
    assert found is not None
    assert input_names(found) == ["b"]
    assert len(found.feeds) == 3
    for before, after in zip(held, found.feeds, strict=True):
        assert np.array_equal(before["b"], after["b"])
    assert not np.array_equal(found.feeds[0]["b"], found.feeds[1]["b"])
    assert found.observe(["y"])[2]["y"].tobytes() == whole.observe(["y"])[2]["y"].tobytes()


def test_side_inputs_keep_their_types_when_cut() -> None:
    body = "b = Cast<to=16>(x) h = Cast<to=10>(x) i = Cast<to=7>(x) l = Cast<to=9>(x)"
    sinks = "p = Identity(b) q = Identity(h) r = Identity(i) s = Identity(l)"
    declared = "bfloat16[1,16,8,8] p, float16[1,16,8,8] q, int64[1,16,8,8] r, bool[1,16,8,8] s"
    whole = problem(text_model(f"{body} {sinks}", outputs=declared))
    found = keep_nodes(whole, range(4, 8))
    assert found is not None
    assert found.checker_says() == ""
    assert found.why_not_run() == ""
    dtypes = {name: value.dtype for name, value in found.feeds[0].items()}
    assert dtypes == {"b": BFLOAT16, "h": np.float16, "i": np.int64, "l": np.bool_}


def test_a_cut_keeps_the_symbols_of_dims() -> None:
    whole = problem(text_model("a = Relu(x) y = Neg(a)", "float[N,4] x", "float[N,4] y"))
    found = keep_nodes(whole, [1])
    assert found is not None
    assert [dim.dim_param for dim in found.model.graph.input[0].type.tensor_type.shape.dim] == ["N", ""]


def test_sequences_and_empty_selections_cant_be_cut() -> None:
    text = "s = SequenceConstruct(x, x) i = Constant<value_int=0>() y = SequenceAt(s, i)"
    whole = problem(text_model(text))
    assert keep_nodes(whole, [2]) is None
    assert keep_nodes(whole, []) is None


def test_a_tensor_of_another_shape_in_each_sample_is_no_input() -> None:
    model = text_model("n = NonZero(x) y = Cast<to=1>(n)", "float[4] x", "float[1,K] y")
    samples = [{"x": np.array(v, np.float32)} for v in ([1, 0, 0, 0], [1, 1, 0, 0])]
    assert keep_nodes(problem_of(model, samples), [1]) is None
    assert keep_nodes(problem_of(model, samples[:1]), [1]) is not None


def test_what_a_body_captures_becomes_an_input() -> None:
    text = (
        "a = Relu(x) c = Cast<to=9>(f) y = If(c) <"
        "then_branch = t () => (float[1,16,8,8] u) { u = Neg(a) },"
        "else_branch = e () => (float[1,16,8,8] v) { v = Abs(a) }>"
    )
    whole = problem(text_model(text, inputs="float[1,16,8,8] x, float f"))
    found = keep_nodes(whole, [2])
    assert found is not None
    assert set(input_names(found)) == {"a", "c"}
    assert found.checker_says() == ""
    assert found.why_not_run() == ""


def test_a_loop_is_cut_out_with_what_its_body_captures() -> None:
    body = (
        "body = b (int64 n, bool go, float[1,16,8,8] h) => (bool go_on, float[1,16,8,8] g)"
        "{ go_on = Identity(go) g = Add(h, a) }"
    )
    text = f"a = Relu(x) m = Constant<value_int=2>() t = Constant<value=bool {{1}}>() l = Loop(m, t, x) <{body}>"
    whole = problem(text_model(f"{text} y = Relu(l)"), samples=2)
    found = reduce_model(whole, holds("Loop", "Add")).problem
    assert op_counts(found) == {"Loop": 1, "Identity": 1, "Add": 1}
    assert found.checker_says() == ""
    assert all(node_of(found, "Loop").input[:2])  # without them it would never end


# leaving out


def test_a_node_is_passed_by() -> None:
    found = after_edits(bypass_edits, problem(text_model(CHAIN)), holds("Relu", "Sigmoid"))
    assert op_types(found) == ["Relu", "Sigmoid"]
    assert len(found.model.graph.output) == 1


def test_a_node_of_another_shape_or_type_isnt_passed_by() -> None:
    model = text_model("a = Transpose<perm=[1,0]>(x) b = Cast<to=10>(a) y = Relu(b)", "float[3,4] x", "float16[4,3] y")
    found = after_edits(bypass_edits, problem(model), holds("Relu"))
    assert op_types(found) == ["Transpose", "Cast"] or "Relu" in op_types(found)
    assert "Transpose" in op_types(found)
    assert "Cast" in op_types(found)


def test_readers_in_bodies_are_passed_on_too() -> None:
    text = (
        "a = Neg(x) c = Cast<to=9>(f) y = If(c) <"
        "then_branch = t () => (float[1,16,8,8] u) { u = Relu(a) },"
        "else_branch = e () => (float[1,16,8,8] v) { v = Abs(a) }>"
    )
    found = after_edits(bypass_edits, problem(text_model(text, inputs="float[1,16,8,8] x, float f")), holds("If"))
    assert "Neg" not in op_types(found)
    assert found.checker_says() == ""


def test_constants_are_folded() -> None:
    model = text_model("k = Constant<value_float=2.0>() m = Mul(c, k) n = Sqrt(m) y = Mul(x, n)")
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.float32(8), "c"))
    found = after_edits(folding_edits, problem(model))
    assert op_types(found) == ["Mul"]
    assert [float(value) for value in initializers(found).values()] == [4.0]


def test_what_depends_on_an_input_or_on_chance_isnt_folded() -> None:
    model = text_model("r = RandomNormal<shape=[1,16,8,8]>() s = Relu(x) y = Add(r, s)")
    whole = problem(model)
    assert after_edits(folding_edits, whole) is whole


def test_a_constant_that_would_grow_the_file_isnt_folded() -> None:
    text = "s = Constant<value_ints=[1048577]>() k = ConstantOfShape(s) z = Slice(k, i, j) y = Add(x, z)"
    model = text_model(text, "float[1] x", "float[1] y", i=(1,), j=(1,))
    for tensor, value in zip(model.graph.initializer, (0, 1), strict=True):
        tensor.CopyFrom(numpy_helper.from_array(np.array([value]), tensor.name))
    found = after_edits(folding_edits, problem(model), holds("ConstantOfShape"))
    assert "ConstantOfShape" in op_types(found)


# interface


def test_outputs_and_dead_nodes_are_dropped() -> None:
    model = text_model("a = Relu(x) b = Neg(x) d = Abs(x)", outputs="float[1,16,8,8] a, float[1,16,8,8] b")
    found = after_edits(output_edits, problem(model), holds("Neg"))
    assert op_types(found) == ["Neg"]
    assert [value.name for value in found.model.graph.output] == ["b"]


def test_the_last_output_stays() -> None:
    whole = problem(text_model("y = Relu(x)"))
    assert after_edits(output_edits, whole) is whole


def test_inputs_of_the_same_type_become_one() -> None:
    model = text_model("y = Add(a, b)", "float[4] a, float[4] b", "float[4] y")
    found = after_edits(input_edits, problem(model))
    assert input_names(found) == ["a"]
    assert list(found.feeds[0]) == ["a"]
    assert list(node_of(found, "Add").input) == ["a", "a"]


def test_inputs_of_other_types_or_shapes_stay() -> None:
    model = text_model("d = Cast<to=1>(c) e = Add(a, b) y = Add(e, d)", "float[4] a, float[1] b, int64[4] c",
                       "float[4] y")  # fmt: skip
    whole = problem(model)
    assert after_edits(input_edits, whole) is whole


def test_optional_operands_are_dropped() -> None:
    found = after_edits(operand_edits, problem(text_model("y = Conv(x, w, b)")))
    assert list(node_of(found, "Conv").input) == ["x", "w"]
    assert set(initializers(found)) == {"w"}


def test_an_optional_operand_in_the_middle_leaves_a_gap() -> None:
    model = text_model("y = Clip(x, c, c2)", c2=())
    found = after_edits(operand_edits, problem(model), lambda p: "c2" in node_of(p, "Clip").input)
    assert list(node_of(found, "Clip").input) == ["x", "", "c2"]


def test_variadic_operands_are_dropped_to_what_the_operator_needs() -> None:
    found = after_edits(operand_edits, problem(text_model("y = Sum(x, v, v, v)")))
    assert len(node_of(found, "Sum").input) == 1


def test_required_operands_stay() -> None:
    whole = problem(text_model("a = Conv(x, w) y = Add(a, x)"))
    assert after_edits(operand_edits, whole) is whole


# branches


IF = (
    "c = Cast<to=9>(f) y = If(c) <"
    "then_branch = t () => (float[1,16,8,8] u) { q = Relu(x) u = Neg(q) },"
    "else_branch = e () => (float[1,16,8,8] v) { q2 = Exp(x) v = Abs(q2) }>"
)
IF_INPUTS = "float[1,16,8,8] x, float f"


@pytest.mark.parametrize(("wanted", "inlined"), [("Neg", ["Relu", "Neg"]), ("Abs", ["Exp", "Abs"])])
def test_one_branch_takes_the_place_of_an_if(wanted: str, inlined: list[str]) -> None:
    found = after_edits(inlining_edits, problem(text_model(IF, inputs=IF_INPUTS)), holds(wanted))
    assert op_types(found)[-2:] == inlined
    assert "If" not in op_types(found)
    assert [value.name for value in found.model.graph.output] == ["y"]


def test_an_if_that_the_fault_needs_stays() -> None:
    whole = problem(text_model(IF, inputs=IF_INPUTS))
    assert after_edits(inlining_edits, whole, holds("If")) is whole


def test_a_branch_that_yields_a_constant_gets_a_copy_and_what_is_yielded_twice_stays_shared() -> None:
    text = (
        "c = Cast<to=9>(f) y, z, s = If(c) <"
        "then_branch = t () => (float[1,16,8,8] u, float[1,16,8,8] w, float[1] k) { u = Exp(x) w = Relu(u) },"
        "else_branch = e () => (float[1,16,8,8] v, float[1,16,8,8] q, float[1] k) { v = Abs(x) q = Neg(x) }>"
    )
    model = text_model(text, IF_INPUTS, "float[1,16,8,8] y, float[1,16,8,8] z, float[1] s")
    for attribute in model.graph.node[1].attribute:
        attribute.g.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "k"))
    found = after_edits(inlining_edits, problem(model), holds("Exp"))
    assert op_types(found) == ["Cast", "Exp", "Relu", "Identity"]
    assert list(node_of(found, "Relu").input) == ["y"]
    assert found.checker_says() == ""


# lengths


def test_channels_shrink_together() -> None:
    model = text_model("a = Conv(x, w, b) d = Relu(a) e = Conv(d, w2) y = Add(e, x)", w2=(16, 16, 3, 3))
    found = after_edits(length_edits, problem(model))
    assert {value.shape for value in found.feeds[0].values()} == {(1, 1, 1, 1)}
    assert {name: array.shape for name, array in initializers(found).items()} == {
        "w": (1, 1, 3, 3),
        "b": (1,),
        "w2": (1, 1, 3, 3),
    }
    assert found.why_not_run() == ""


def test_groups_and_stored_shapes_shrink_too() -> None:
    text = "a = Conv<group=16>(x, w) s = Constant<value = int64[4] {1,16,8,8}>() y = Reshape(a, s)"
    found = after_edits(length_edits, problem(text_model(text, w=(16, 1, 3, 3))))
    (group,) = (a.i for a in node_of(found, "Conv").attribute if a.name == "group")
    assert group == 1
    assert found.size.elements < 30


def test_a_length_that_the_fault_needs_stays() -> None:
    whole = problem(text_model("a = Conv(x, w) y = Relu(a)"))
    found = after_edits(length_edits, whole, lambda p: p.feeds[0]["x"].shape[1] == 16)
    assert found.feeds[0]["x"].shape == (1, 16, 1, 1)
    assert initializers(found)["w"].shape[1] == 16


def test_images_and_batches_shrink_first() -> None:
    model = text_model("y = Conv(x, w)", "float[N,16,32,32] x", "float[N,16,32,32] y")
    whole = problem_of(model, [{"x": np.ones((6, 16, 32, 32), np.float32)}])
    found = after_edits(coarse_edits, whole)
    assert found.feeds[0]["x"].shape[1:] == (16, 1, 1)
    assert initializers(found)["w"].shape == (16, 16, 3, 3)


def test_samples_are_cropped_alike() -> None:
    whole = problem(text_model("y = Relu(x)"), samples=3)
    found = after_edits(length_edits, whole)
    for before, after in zip(whole.feeds, found.feeds, strict=True):
        assert after["x"].shape == (1, 1, 1, 1)
        assert after["x"].item() == before["x"][0, 0, 0, 0]


# simpler


def test_kernels_become_points_with_those_that_share_them() -> None:
    found = after_edits(kernel_edits, problem(text_model("a = Conv(x, w) d = Conv(a, w) y = Relu(d)")))
    assert initializers(found)["w"].shape == (16, 16, 1, 1)
    assert all(not node.attribute for node in found.model.graph.node)


def test_the_centre_of_a_kernel_is_kept() -> None:
    whole = problem(text_model("y = Conv(x, w)"))
    found = after_edits(kernel_edits, whole)
    assert np.array_equal(initializers(found)["w"][..., 0, 0], initializers(whole)["w"][..., 1, 1])


def test_point_kernels_and_computed_ones_stay() -> None:
    whole = problem(text_model("r = Relu(w) a = Conv(x, k) y = Conv(a, r)"))
    assert after_edits(kernel_edits, whole) is whole


def test_weights_become_ones() -> None:
    found = after_edits(weight_edits, problem(text_model("y = Conv(x, w, b)")))
    assert all((values == 1).all() for values in initializers(found).values())


def test_weights_become_eighths_where_ones_wont_do() -> None:
    whole = problem(text_model("y = Conv(x, w)"))
    found = after_edits(weight_edits, whole, lambda p: np.unique(initializers(p)["w"]).size > 3)
    values = initializers(found)["w"] * 8
    assert np.array_equal(values, np.rint(values))


def test_weights_that_the_fault_needs_and_integers_stay() -> None:
    model = text_model("i = Gather(x, n) y = Mul(i, v)", n=(1,))
    (index,) = (t for t in model.graph.initializer if t.name == "n")
    index.CopyFrom(numpy_helper.from_array(np.array([0]), "n"))
    whole = problem(model)
    before = initializers(whole)
    found = after_edits(weight_edits, whole, lambda p: np.array_equal(initializers(p)["v"], before["v"]))
    assert found is whole


def test_attributes_get_their_defaults() -> None:
    model = text_model("a = LeakyRelu<alpha=0.3>(x) y = Softmax<axis=1>(a)")
    found = after_edits(attribute_edits, problem(model))
    assert all(not node.attribute for node in found.model.graph.node)


def test_one_attribute_goes_where_another_must_stay() -> None:
    model = text_model("y = Conv<dilations=[1,1], group=1>(x, w)")
    has_dilations = lambda p: any(a.name == "dilations" for a in node_of(p, "Conv").attribute)  # noqa: E731
    found = after_edits(attribute_edits, problem(model), has_dilations)
    assert [a.name for a in node_of(found, "Conv").attribute] == ["dilations"]


def test_required_attributes_stay() -> None:
    whole = problem(text_model("y = Cast<to=10>(x)", outputs="float16[1,16,8,8] y"))
    assert after_edits(attribute_edits, whole) is whole


def test_declarations_texts_and_unused_operators_go() -> None:
    model = text_model("a = Relu(x) y = Relu(a)", "float[N,16,8,8] x", "float[N,16,8,8] y")
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, ["N", 16, 8, 8]))
    model.doc_string = model.producer_name = "somebody"
    model.metadata_props.add(key="k", value="v")
    model.graph.node[0].doc_string = "a comment"
    found = after_edits(declaration_edits, problem(model))
    graph = found.model.graph
    assert not graph.value_info
    assert {found.model.doc_string, found.model.producer_name, graph.node[0].doc_string} == {""}
    assert not found.model.metadata_props
    assert [opset.domain for opset in found.model.opset_import] == [""]
    assert found.size.declarations == 1
    assert graph.output[0].type.tensor_type.shape.dim[0].dim_value == found.feeds[0]["x"].shape[0]


def test_a_stale_declaration_that_the_fault_needs_stays() -> None:
    model = text_model("a = Relu(x) y = Relu(a)", "float[N,16,8,8] x", "float[N,16,8,8] y")
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, ["N", 16, 8, 8]))
    found = after_edits(declaration_edits, problem(model), lambda p: bool(p.model.graph.value_info))
    assert [value.name for value in found.model.graph.value_info] == ["a"]
    assert len(found.model.opset_import) == 1


def test_names_become_neutral_with_those_of_the_samples() -> None:
    whole = problem(text_model("secret = Relu(x) y = Neg(secret)"), samples=2)
    found = after_pass(rename, whole)
    assert "secret" not in onnx.printer.to_text(found.model)
    assert [list(feed) for feed in found.feeds] == [input_names(found)] * 2


def test_names_that_the_fault_needs_stay() -> None:
    whole = problem(text_model("secret = Relu(x) y = Neg(secret)"))
    assert after_pass(rename, whole, lambda p: "secret" in onnx.printer.to_text(p.model)) is whole


def test_every_pass_leaves_a_model_alone_that_is_as_small_as_can_be() -> None:
    model = text_model("y = Relu(x)", "float[1] x", "float[1] y")
    del model.opset_import[1:]
    smallest = reduce_model(problem(model), always).problem
    for apply in PASSES:
        assert after_pass(apply, smallest) is smallest
