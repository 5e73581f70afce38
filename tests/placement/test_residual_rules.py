"""Rules R1 to R10: what is a residual Add, and which of its inputs is the skip."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

from text_models import placed, quantized_inputs, rules, swap, text_model

SHAPE = "float[1,16,8,8]"

# name -> (nodes that end in y, the input of y that must be quantized)
RESIDUAL = {
    "identity block": ("s = Relu(x) a = Conv(s, w1) y = Add(a, s)", "s"),
    "two convolutions": ("s = Relu(x) a = Conv(s, w1) b = Relu(a) c = Conv(b, w2) y = Add(c, s)", "s"),
    "graph input as skip": ("a = Conv(x, w1) y = Add(a, x)", "x"),
    "Sum of two": ("s = Relu(x) a = Conv(s, w1) y = Sum(a, s)", "s"),
    "transposed convolution": ("s = Relu(x) a = ConvTranspose(s, w1) y = Add(a, s)", "s"),
    "skip behind Identity": ("s = Relu(x) i = Identity(s) a = Conv(s, w1) y = Add(a, i)", "i"),
    "Exp of an input as skip": ("a = Conv(x, w1) s = Exp(x) y = Add(a, s)", "s"),
    "pooled skip": (
        "s = AveragePool<kernel_shape = [3,3], pads = [1,1,1,1]>(x) a = Conv(x, w1) y = Add(a, s)",
        "s",
    ),
    "Add as skip": ("s = Relu(x) t = Sigmoid(x) u = Add(s, t) a = Conv(u, w1) y = Add(a, u)", "u"),
    "projection": ("s = Relu(x) a = Conv(s, w1) b = Relu(a) c = Conv(b, w2) d = Conv(s, k1) y = Add(c, d)", "d"),
    "projection, unlike types": (
        "s = Relu(x) a = Conv(s, w1) b = Relu(a) c = Conv(b, w2) d = ConvTranspose(s, k1) e = Relu(d) y = Add(c, e)",
        "e",
    ),
    "longer in nodes": ("s = Relu(x) a = Conv(s, w1) b = Relu(a) c = Conv(s, w2) y = Add(b, c)", "c"),
    "more linear ops beat more nodes": (
        """s = Relu(x) a = Conv(s, w1) b = Conv(a, w2)
           c = Conv(s, w3) d = Relu(c) e = Sigmoid(d) f = Tanh(e) y = Add(b, f)""",
        "f",
    ),
    "a Gemm-like op counts as linear": (
        "a = Conv(x, w1) m = MatMul(x, m1) b = Conv(m, w2) y = Add(a, b)",
        "a",
    ),
    "heavier": ("s = Relu(x) a = Conv(s, w1) b = Conv(s, k1) y = Add(a, b)", "b"),
    "heavier, unlike types": ("s = Relu(x) a = ConvTranspose(s, w1) b = Conv(s, k1) y = Add(a, b)", "b"),
    "chained with a shared skip": ("s = Relu(x) a = Conv(s, w1) t = Add(a, s) b = Conv(t, w2) y = Add(b, t)", "t"),
    "a fork far up": (
        """s = Conv(x, w1) p = Relu(s) q = MaxPool<kernel_shape = [3,3], pads = [1,1,1,1]>(p)
           r = Relu(q) a = Conv(r, w2) b = Conv(a, w3) y = Add(b, q)""",
        "q",
    ),
    "RepVGG with a batch norm on the skip": (
        "s = Relu(x) n = BatchNormalization(s, b1, b2, b3, b4) a = Conv(s, w1) y = Add(a, n)",
        "n",
    ),
}

EPILOGUES = {
    "BatchNormalization": "e = BatchNormalization(c, b1, b2, b3, b4)",
    "Relu": "e = Relu(c)",
    "LeakyRelu": "e = LeakyRelu(c)",
    "PRelu": "e = PRelu(c, c1)",
    "Clip": "e = Clip(c, c1, c2)",
    "Sigmoid": "e = Sigmoid(c)",
    "Tanh": "e = Tanh(c)",
    "HardSigmoid": "e = HardSigmoid(c)",
    "HardSwish": "e = HardSwish(c)",
    "Elu": "e = Elu(c)",
    "Selu": "e = Selu(c)",
    "Celu": "e = Celu(c)",
    "Softplus": "e = Softplus(c)",
    "Mish": "e = Mish(c)",
    "Gelu": "e = Gelu(c)",
    "bias Add": "e = Add(c, v1)",
    "bias Add, constant first": "e = Add(v1, c)",
    "scale": "e = Mul(c, c1)",
    "subtraction": "e = Sub(c, c1)",
    "division": "e = Div(c, c1)",
    "constant minus": "e = Sub(c1, c)",
    "Relu6 by Max and Min": "e0 = Max(c, c1) e = Min(e0, c2)",
    "computed constant": "k = Mul(c1, c2) e = Add(c, k)",
    "Identity of a constant": "k = Identity(c1) e = Add(c, k)",
    "bias from a Constant node": "k = Constant<value = float {1.5}>() e = Add(c, k)",
    "SiLU": "g = Sigmoid(c) e = Mul(c, g)",
    "SiLU swapped": "g = Sigmoid(c) e = Mul(g, c)",
    "SiLU behind BN": "n = BatchNormalization(c, b1, b2, b3, b4) g = Sigmoid(n) e = Mul(n, g)",
    "SiLU with Identity nodes": "i = Identity(c) g = Sigmoid(i) j = Identity(c) e = Mul(j, g)",
    "Swish with a factor": "f = Mul(c, c1) g = Sigmoid(f) e = Mul(c, g)",
    "HardSwish by HardSigmoid": "g = HardSigmoid(c) e = Mul(c, g)",
    "HardSwish by Clip": "p = Add(c, c1) g = Clip(p, c2, c3) m = Mul(c, g) e = Div(m, c4)",
    "HardSwish by Clip, divided first": "p = Add(c, c1) g = Clip(p, c2, c3) h = Div(g, c4) e = Mul(c, h)",
    "Mish written out": "p = Softplus(c) g = Tanh(p) e = Mul(c, g)",
    "Gelu by Erf": "h = Mul(c, c1) d = Div(c, c2) f = Erf(d) g = Add(f, c3) e = Mul(h, g)",
    "Gelu by Erf, other order": "d = Div(c, c2) f = Erf(d) g = Add(f, c3) h = Mul(c, g) e = Mul(h, c1)",
    "SiLU by Exp": "n = Neg(c) f = Exp(n) g = Add(f, c3) e = Div(c, g)",
    "Transpose there and back": "p = Transpose<perm = [0,2,3,1]>(c) e = Transpose<perm = [0,3,1,2]>(p)",
    "Transpose before a bias Add": "p = Transpose<perm = [0,1,3,2]>(c) e = Add(p, v1)",
    "Transpose after a bias Add": "p = Add(c, v1) e = Transpose<perm = [0,1,3,2]>(p)",
    "Reshape": "sh = Constant<value_ints = [1,16,8,8]>() e = Reshape(c, sh)",
    "Concat of one": "e = Concat<axis = 1>(c)",
    "Split and Concat": "p, q = Split<axis = 1>(c) e = Concat<axis = 1>(q, p)",
    "Dropout": "e = Dropout(c)",
    "Dropout with its mode written out": (
        "ra = Constant<value_float = 0.5>() tm = Constant<value = bool {0}>() e = Dropout(c, ra, tm)"
    ),
    "MaxPool that closes Conv-Relu": "p = Relu(c) e = MaxPool<kernel_shape = [3,3], pads = [1,1,1,1]>(p)",
    "Relu6 and MaxPool": "p = Clip(c, c1, c2) e = MaxPool<kernel_shape = [3,3], pads = [1,1,1,1]>(p)",
}

NO_EPILOGUES = {
    "Exp": "e = Exp(c)",
    "Softmax": "e = Softmax(c)",
    "AveragePool": "e = AveragePool<kernel_shape = [3,3], pads = [1,1,1,1]>(c)",
    "MaxPool right behind the convolution": "e = MaxPool<kernel_shape = [3,3], pads = [1,1,1,1]>(c)",
    "a gate from elsewhere": "o = Sigmoid(s) e = Mul(c, o)",
    "a second Add": "o = Tanh(s) e = Add(c, o)",
    "a polynomial": "o = Mul(c, c1) e = Mul(c, o)",
    "constant over": "e = Div(c1, c)",
    "Concat with what is no convolution's": (
        "p, q = Split<axis = 1>(c) o, u = Split<axis = 1>(s) e = Concat<axis = 1>(p, o)"
    ),
    "Concat of two convolutions": (
        "p, q = Split<axis = 1>(c) d = Conv(s, w9) o, u = Split<axis = 1>(d) e = Concat<axis = 1>(p, o)"
    ),
    "linear Resize": 'sc = Constant<value_floats = [1.0,1.0,1.0,1.0]>() e = Resize<mode = "linear">(c, , sc)',
    "MatMul": "e = MatMul(c, m1)",
    "a custom Relu": "e = custom.Relu(c)",
}

NOT_RESIDUAL = {
    "Sub": "s = Relu(x) a = Conv(s, w1) y = Sub(a, s)",
    "Sub of two convolutions": "s = Relu(x) a = Conv(s, w1) b = Conv(s, w2) y = Sub(a, b)",
    "Sum of three": "s = Relu(x) a = Conv(s, w1) b = Conv(s, w2) y = Sum(a, b, s)",
    "Sum of one": "s = Relu(x) a = Conv(s, w1) y = Sum(a)",
    "Mul": "s = Relu(x) a = Conv(s, w1) y = Mul(a, s)",
    "bias": "s = Relu(x) a = Conv(s, w1) y = Add(a, v1)",
    "bias behind Identity": "s = Relu(x) a = Conv(s, w1) k = Identity(v1) y = Add(a, k)",
    "gate of pooled data": "c = Conv(x, w1) p = GlobalAveragePool(c) q = Conv(p, k1) y = Add(c, q)",
    "one convolution, its gate": "c = Conv(x, w1) g = Sigmoid(c) y = Add(c, g)",
    "one convolution twice": "c = Conv(x, w1) y = Add(c, c)",
    "ConvNeXt's branch": "c = Conv(x, w1) p = Relu(c) d = Conv(p, w2) e = MatMul(d, m1) y = Add(c, e)",
    "no convolution at all": "s = Relu(x) t = Sigmoid(x) y = Add(s, t)",
    "transformer MLP": "h = MatMul(x, m1) r = Relu(h) m = MatMul(r, m2) y = Add(h, m)",
    "MatMul and graph input": "m = MatMul(x, m1) y = Add(m, x)",
    "squeeze-excite last": (
        """s = Relu(x) c = Conv(s, w1) p = GlobalAveragePool(c) q = Conv(p, k1) g = Sigmoid(q) m = Mul(c, g)
        y = Add(m, s)"""
    ),
    "reshaped input": "sh = Constant<value_ints = [1,16,8,8]>() r = Reshape(x, sh) s = Relu(x) y = Add(r, s)",
}

M = {"m1": (8, 8), "m2": (8, 8)}


def build(body: str, opset: int = 17) -> ModelProto:
    return text_model(body, opset=opset, **M)


@pytest.mark.parametrize("name", RESIDUAL)
@pytest.mark.parametrize("swapped", [False, True], ids=["", "swapped"])
def test_exactly_the_skip_is_quantized(name: str, swapped: bool) -> None:
    body, skip = RESIDUAL[name]
    model = build(body)
    assert quantized_inputs(swap(model, "y") if swapped else model)["y"] == [skip]


@pytest.mark.parametrize("name", RESIDUAL)
def test_names_and_their_order_decide_nothing(name: str) -> None:
    body, skip = RESIDUAL[name]
    expected = build(body)
    model = build(body)
    tensors = {t for node in model.graph.node for t in (*node.input, *node.output) if t}
    new = {t: f"n{Random(t).randrange(10**9)}" for t in sorted(tensors)}
    for node in model.graph.node:
        node.name = ""
        node.input[:] = [new.get(t, t) for t in node.input]
        node.output[:] = [new.get(t, t) for t in node.output]
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.name = new[value.name]
    assert quantized_inputs(model)[new["y"]] == [new[skip]]
    assert {new[t]: [new[i] for i in read] for t, read in quantized_inputs(expected).items()} == quantized_inputs(model)


@pytest.mark.parametrize("name", NOT_RESIDUAL)
@pytest.mark.parametrize("swapped", [False, True], ids=["", "swapped"])
def test_what_is_no_residual_add_stays_float(name: str, swapped: bool) -> None:
    model = build(NOT_RESIDUAL[name])
    assert "y" not in quantized_inputs(swap(model, "y") if swapped else model)


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("operands", ["e, s", "s, e"])
def test_the_backbone_is_found_through(name: str, operands: str) -> None:
    model = build(f"s = Relu(x) c = Conv(s, w1) {EPILOGUES[name]} y = Add({operands})", opset=20)
    assert quantized_inputs(model)["y"] == ["s"]


@pytest.mark.parametrize("name", NO_EPILOGUES)
@pytest.mark.parametrize("operands", ["e, s", "s, e"])
def test_the_backbone_is_not_found_through(name: str, operands: str) -> None:
    model = build(f"s = Relu(x) c = Conv(s, w1) {NO_EPILOGUES[name]} y = Add({operands})")
    if name == "a custom Relu":
        model.graph.value_info.append(helper.make_tensor_value_info("e", 1, [1, 16, 8, 8]))
    assert "y" not in quantized_inputs(model)


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("operands", [("e", "r_e"), ("r_e", "e")], ids=["", "swapped"])
def test_both_branches_may_end_in_the_same_epilogue(name: str, operands: tuple[str, str]) -> None:
    """Activations behind both convolutions: the longer branch is the trunk, whatever the operand order."""
    start = "s = Relu(x) c0 = Conv(s, w1) c = Conv(c0, w2) r_c = Conv(s, w3)"
    model = build(f"{start} {EPILOGUES[name]}", opset=20)
    epilogue = list(model.graph.node)[4:]
    inner = {"c"} | {tensor for node in epilogue for tensor in node.output}
    for node in epilogue:
        twin = model.graph.node.add()
        twin.CopyFrom(node)
        twin.name = f"r_{node.name}"
        twin.input[:] = [f"r_{t}" if t in inner else t for t in node.input]
        twin.output[:] = [f"r_{t}" for t in node.output]
    model.graph.node.append(helper.make_node("Add", operands, ["y"]))
    assert quantized_inputs(model)["y"] == ["r_e"]


def test_the_rule_that_decided_is_named() -> None:
    bodies = {
        "R1": "s = Relu(x) a = Conv(s, w1) y = Add(a, v1)",
        "R4": NOT_RESIDUAL["one convolution, its gate"],
        "R5": RESIDUAL["identity block"][0],
        "R6": RESIDUAL["projection"][0],
        "R7": RESIDUAL["heavier"][0],
    }
    assert {rules(build(body))["y", 0] for body in bodies.values()} == set(bodies)
    for rule, body in bodies.items():
        assert rules(build(body))["y", 0] == rule


def test_r7_equal_branches_are_told_apart_by_their_weights_whichever_operand() -> None:
    body = "s = Relu(x) a = Conv(s, w1) b = Conv(s, w2) r = Add(a, b) y = Relu(r)"
    model = build(body)
    (first,) = quantized_inputs(model)["r"]
    assert quantized_inputs(swap(model, "r"))["r"] == [first]
    exchanged = build(body.replace("w1", "w0").replace("w2", "w1").replace("w0", "w2"))
    assert quantized_inputs(exchanged)["r"] == [{"a": "b", "b": "a"}[first]]


def test_r7_branches_from_two_inputs_are_told_apart_too() -> None:
    inputs = f"{SHAPE} x, {SHAPE} z"
    model = text_model("a = Conv(x, w1) b = Conv(z, w1) y = Add(a, b)", inputs)
    assert quantized_inputs(model)["y"] == quantized_inputs(swap(model, "y"))["y"]
    assert len(quantized_inputs(model)["y"]) == 1


def test_r7_interchangeable_branches_get_exactly_one_pair() -> None:
    model = build("a = Conv(x, w1) b = Conv(x, w1) y = Add(a, b)")
    assert len(quantized_inputs(model)["y"]) == 1


def test_r8_a_tensor_may_be_the_skip_of_several_adds() -> None:
    model = build("s = Relu(x) a = Conv(s, w1) b = Conv(s, w2) p = Add(a, s) q = Add(b, s) y = Mul(p, q)")
    found = quantized_inputs(model)
    assert found["p"] == found["q"] == ["s"]


def test_one_convolution_feeding_two_adds() -> None:
    """The first Add reads the trunk raw; the second can't, since the first one's result needs the convolution."""
    model = build("s = Relu(x) a = Conv(s, w1) p = Add(a, s) t = Relu(p) q = Add(a, t) y = Relu(q)")
    found = quantized_inputs(model)
    assert found["p"] == ["s"]
    assert "q" not in found


def test_repvgg_sum_of_branches_and_identity() -> None:
    model = build("s = Relu(x) a = Conv(s, w1) b = Conv(s, k1) p = Add(a, b) q = Add(p, s) y = Relu(q)")
    found = quantized_inputs(model)
    assert found["p"] == ["b"]
    assert "q" not in found


@pytest.mark.parametrize("options", [{"nodes_to_exclude": ["a"]}, {"op_types_to_exclude": ["Conv"]}])
def test_r9_no_pair_where_the_convolution_stays_float(options: dict[str, list[str]]) -> None:
    model = build(RESIDUAL["identity block"][0])
    assert "y" not in quantized_inputs(model, **options)
    assert "R9" in {rules(model, **options)["y", slot] for slot in (0, 1)}


def test_r9_a_weight_that_is_computed_from_data_keeps_the_convolution_float() -> None:
    model = build("s = Relu(x) v = Mul(w1, m) m = ReduceMax<keepdims = 0>(x) a = Conv(s, v) y = Add(a, s)")
    assert "y" not in quantized_inputs(model)


def test_r10_it_is_enough_that_the_add_reads_it() -> None:
    model = build("a = Conv(x, w1) s = Tanh(x) p = Add(a, s) y = Softmax(p)")
    assert quantized_inputs(model)["p"] == ["s"]


def test_an_excluded_add_stays_float() -> None:
    model = build(RESIDUAL["identity block"][0])
    assert rules(model, nodes_to_exclude=["y"])["y", 1] == "P2"
    assert quantized_inputs(model, nodes_to_exclude=["y"]) == {"a": ["s", "w1"]}


@pytest.mark.parametrize("swapped", [False, True], ids=["", "swapped"])
def test_the_first_common_ancestor_by_walk_is_not_asked(swapped: bool) -> None:
    """P and Q are equally far from L: who walks sets finds one or the other by the hash seed."""
    body = """p = Relu(x) q = Sigmoid(z) tp = Tanh(p) tq = Tanh(q) ml = Mul(tp, tq) l = Conv(ml, w1)
        t1 = Tanh(q) t2 = Tanh(t1) t3 = Tanh(t2) t4 = Tanh(t3) mn = Mul(p, t4) n = Conv(mn, w2) y = Add(l, n)"""
    model = text_model(body, f"{SHAPE} x, {SHAPE} z")
    assert quantized_inputs(swap(model, "y") if swapped else model)["y"] == ["l"]


def test_a_swap_inside_a_branch_changes_nothing() -> None:
    body = """s = Relu(x) g = Sigmoid(s) t1 = Tanh(s) t2 = Tanh(t1) t3 = Tanh(t2) m = Mul(g, t3) a = Conv(m, w1)
        u1 = Tanh(s) u2 = Tanh(u1) b = Conv(u2, w2) y = Add(a, b)"""
    model = build(body)
    assert quantized_inputs(model)["y"] == ["b"]
    assert quantized_inputs(swap(model, "m"))["y"] == ["b"]


def test_fpn_lateral_and_nearest_resize_whose_sizes_come_from_the_lateral() -> None:
    """The size computation reads the lateral's shape, not its values, so the lateral can still run last."""
    inputs = "float[1,16,8,8] x, float[1,16,4,4] t"
    body = """l = Conv(x, k1) s = Shape(l) top = Conv(t, w1) r = Relu(top)
        u = Resize<mode = "nearest">(r, , , s) p = Add(l, u) y = Conv(p, w2)"""
    model = text_model(body, inputs)
    placement = placed(model)
    (residual,) = placement.residuals
    assert residual.skip is not None
    assert len(quantized_inputs(model)["p"]) == 1
    assert quantized_inputs(model)["p"] == quantized_inputs(swap(model, "p"))["p"]
    assert not [e for e in placement.quantized if placement.labels[e].op_type in ("Resize", "Shape")]


def test_fpn_whose_top_is_no_convolution_is_residual_by_its_lateral() -> None:
    inputs = "float[1,16,8,8] x, float[1,16,4,4] t"
    body = 'l = Conv(x, k1) s = Shape(l) u = Resize<mode = "nearest">(t, , , s) p = Add(l, u) y = Conv(p, w2)'
    assert quantized_inputs(text_model(body, inputs))["p"] == ["u"]


@pytest.mark.parametrize(
    ("left", "right", "is_residual"),
    [
        ("n,16,8,8", "n,16,8,8", True),
        ("n,16,8,8", "1,16,8,8", False),
        ("n,16,8,8", "m,16,8,8", True),
        ("n,16,8,8", "?,16,?,?", True),
        ("1,16,8,8", "?,16,?,?", True),
        ("1,16,8,8", "?,16,1,1", False),
        ("1,16,?,?", "1,16,1,1", False),
        ("1,16,8,8", "1,?,8,8", True),
        ("1,16,8,8", "1,16,4,8", False),
        ("1,16,8,8", "16,8,8", False),
    ],
)
@pytest.mark.parametrize("swapped", [False, True], ids=["", "swapped"])
def test_shapes_that_may_be_equal(left: str, right: str, is_residual: bool, swapped: bool) -> None:
    model = text_model("a = Conv(x, w1) y = Add(a, z)", f"float[{left}] x, float[{right}] z", "float y")
    assert quantized_inputs(swap(model, "y") if swapped else model).get("y", []) == (["z"] if is_residual else [])


def test_embeddings_and_attention_masks_are_not_residual() -> None:
    body = """e = Gather(w, ids) f = Gather(w, pos) h = Add(e, f) q = MatMul(h, m1) t = Transpose<perm = [0,2,1]>(q)
        scores = MatMul(q, t) masked = Add(scores, mask) soft = Softmax(masked) y = MatMul(soft, q)"""
    inputs = "int64[1,4] ids, int64[1,4] pos, float[1,4,4] mask"
    found = quantized_inputs(text_model(body, inputs, "float y", w=(10, 16), m1=(16, 16)))
    assert "h" not in found
    assert "masked" not in found


def test_a_graph_input_that_feeds_a_concat_and_an_add() -> None:
    body = "c = Concat<axis = 1>(x, z) d = Conv(c, w9) r = Relu(d) e = Conv(r, w1) y = Add(e, x)"
    model = text_model(body, f"{SHAPE} x, {SHAPE} z", w9=(16, 32, 3, 3))
    assert quantized_inputs(model)["y"] == ["x"]
    assert placed(model).scale_groups == (("x", "c"),)


def test_an_add_that_feeds_a_concat_with_its_own_skip() -> None:
    """C2f: the Add's convolution edge stays float, and what meets in the Concat shares one scale."""
    body = """c = Conv(x, w1) g = Sigmoid(c) a1 = Mul(c, g) d = Conv(a1, w2) h = Sigmoid(d) m = Mul(d, h)
        a2 = Add(m, a1) t = Concat<axis = 1>(a1, a2) y = Conv(t, w9)"""
    model = text_model(body, w9=(16, 32, 3, 3))
    assert quantized_inputs(model)["a2"] == ["a1"]
    assert placed(model).scale_groups == (("a1", "t"),)


def test_two_skips_of_nested_blocks_are_quantized_once_each() -> None:
    body = """s = Relu(x) a = Conv(s, w1) b = Relu(a) c = Conv(b, w2) t = Add(c, b) d = Conv(t, w3) y = Add(d, s)"""
    found = quantized_inputs(build(body))
    assert (found["t"], found["y"]) == (["b"], ["s"])


def test_an_identity_on_the_scales_of_a_resize_hides_no_residual() -> None:
    body = """sc = Constant<value_floats = [1.0,1.0,2.0,2.0]>() i = Identity(sc) s = Relu(x) a = Conv(s, w1)
        r = Resize<mode = "nearest">(t, , i) b = Conv(r, w2) y = Add(a, b)"""
    assert len(quantized_inputs(text_model(body, f"{SHAPE} x, float[1,16,4,4] t"))["y"]) == 1


def test_a_convolution_behind_an_untyped_custom_op_is_no_crash() -> None:
    model = text_model("s = Relu(x) t = custom.Op(s) a = Conv(t, w1) y = Add(a, s)")
    model.graph.value_info.append(helper.make_tensor_value_info("a", 1, [1, 16, 8, 8]))
    assert quantized_inputs(model)["y"] == ["s"]


def test_adds_inside_bodies_are_placed_there_and_named_with_their_path() -> None:
    body = """[if1] y = If(c) <then_branch = t () => (float[1,16,8,8] a) { s = Relu(x) v = Conv(s, k1) a = Add(v, s) },
        else_branch = e () => (float[1,16,8,8] b) { b = Neg(x) }>"""
    model = text_model(body, f"{SHAPE} x, bool c")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((16, 16, 1, 1), np.float32), "k1"))
    placement = placed(model)
    assert [placement.labels[e].key for e in placement.quantized] == [f"if1.then_branch/{t}" for t in ("s", "k1", "s")]
    assert "if1.then_branch/" in placement.to_text()
    assert {d.reason.rule.name for e, d in placement.items() if placement.labels[e].output == "a"} == {"R5"}


def test_a_convolution_around_a_body_is_no_backbone_in_it() -> None:
    body = """v = Conv(x, w1) [if1] y = If(c) <then_branch = t () => (float[1,16,8,8] a) { s = Relu(x) a = Add(v, s) },
        else_branch = e () => (float[1,16,8,8] b) { b = Neg(x) }>"""
    assert quantized_inputs(text_model(body, f"{SHAPE} x, bool c")) == {"v": ["x", "w1"]}


def test_the_body_of_an_op_that_calibration_cannot_look_into_stays_float() -> None:
    body = """q = Neg(k1) s = SequenceConstruct(x) [map] y = SequenceMap(s) <
        body = b (float[1,16,8,8] e) => (float[1,16,8,8] r) { r = Conv(e, k1) }>"""
    placement = placed(text_model(body, f"{SHAPE} x", f"seq({SHAPE}) y"))
    assert not placement.quantized
    assert {d.reason.rule.name for e, d in placement.items() if placement.labels[e].graph} == {"BODY"}


def test_the_chain_of_doubled_paths_is_walked_once() -> None:
    """Mul(t, t) a thousand times between a convolution and its Add: paths double with every step."""
    steps = " ".join(f"t{n + 1} = Mul(t{n}, t{n})" for n in range(1000))
    model = build(f"t0 = Conv(x, w1) {steps} a = Conv(t1000, w2) y = Add(a, x)")
    assert quantized_inputs(model)["y"] == ["x"]
    shuffles = " ".join(
        f"p{n}, q{n} = Split<axis = 1>(u{n}) u{n + 1} = Concat<axis = 1>(q{n}, p{n})" for n in range(500)
    )
    model = build(f"u0 = Conv(x, w1) {shuffles} y = Add(u500, x)")
    assert quantized_inputs(model)["y"] == ["x"]


def test_exchanges_between_two_long_chains_are_compared_locally() -> None:
    """Hundreds of Adds whose branches are equally long, and share all but their last convolution."""
    steps = " ".join(
        f"""c{n} = Conv(p{n}, w1) d{n} = Conv(q{n}, k1) p{n + 1} = Add(c{n}, d{n})
        e{n} = Conv(p{n}, w2) f{n} = Conv(q{n}, k2) q{n + 1} = Add(e{n}, f{n})"""
        for n in range(300)
    )
    body = f"p0 = Relu(x) q0 = Relu(z) {steps} y = Sub(p300, q300)"
    found = quantized_inputs(text_model(body, f"{SHAPE} x, {SHAPE} z"))
    assert all(found[f"p{n + 1}"] == [f"d{n}"] and found[f"q{n + 1}"] == [f"f{n}"] for n in range(300))
