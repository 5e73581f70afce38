"""Ground truth of hand-written topologies whose right answers are known from the placement rules."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onnxq.strategies import Block, LabelledModel, Topology, build

Answer = tuple[str, str | None, str | None]
"""Rule, then the op types that produce skip and trunk ("input" for a graph input)."""

NONE = ("R4", None, None)


def answers(labelled: LabelledModel) -> list[Answer]:
    producer = {o: n.op_type for n in labelled.model.graph.node for o in n.output}
    return [
        (a.rule, *(None if t is None else producer.get(t, "input") for t in (a.skip, a.trunk))) for a in labelled.adds
    ]


def truth(*blocks: Block, inputs: int = 1) -> list[Answer]:
    return answers(build(Topology(blocks, inputs)))


RESIDUAL: list[tuple[str, Sequence[Block], Answer]] = [
    ("graph input as skip", [Block("identity", norm=True)], ("R5", "input", "BatchNormalization")),
    (
        "Relu of a convolution as skip",
        [Block("conv", activation="relu"), Block("identity", norm=True, variant=1)],
        ("R5", "Relu", "BatchNormalization"),
    ),
    (
        "ConvTranspose-Relu against Conv-BN-Relu-Conv-BN",
        [Block("upsampling", activation="relu", norm=True, variant=1)],
        ("R5", "Relu", "BatchNormalization"),
    ),
    (
        "two branches with ConvTranspose from one root: the longer is the trunk",
        [Block("upsampling", activation="relu", variant=2)],
        ("R6", "ConvTranspose", "ConvTranspose"),
    ),
    ("resized skip", [Block("max_pool"), Block("upsampling")], ("R5", "Resize", "ConvTranspose")),
    (
        "projection with the longer branch",
        [Block("projection", activation="relu", norm=True, variant=1)],
        ("R6", "BatchNormalization", "BatchNormalization"),
    ),
    ("projection with the heavier branch", [Block("projection", activation="relu")], ("R7", "Conv", "Conv")),
    ("bottleneck", [Block("bottleneck", activation="relu", norm=True)], ("R5", "input", "BatchNormalization")),
    ("preactivation", [Block("preactivation", activation="relu", norm=True)], ("R5", "input", "Conv")),
    ("layer scale", [Block("layer_scale", activation="gelu", norm=True)], ("R5", "input", "Mul")),
    ("no gate", [Block("inverted_bottleneck", activation="relu6", norm=True)], ("R5", "input", "BatchNormalization")),
    ("gate inside the branch", [Block("inverted_bottleneck", activation="silu", variant=1)], ("R5", "input", "Conv")),
    ("SiLU ends the branch", [Block("identity", activation="silu", norm=True, variant=3)], ("R5", "input", "Mul")),
    ("Gelu written out", [Block("identity", activation="gelu_by_erf", variant=3)], ("R5", "input", "Mul")),
    ("Sum of two", [Block("conv"), Block("sum", other=1)], ("R5", "input", "Conv")),
    (
        "pooled convolution",
        [Block("max_pool", norm=True), Block("conv_transpose"), Block("add", other=1)],
        ("R5", "Resize", "ConvTranspose"),
    ),
    (
        "copies between convolution and Add",
        [Block("conv"), Block("copy", variant=3), Block("add", other=2)],
        ("R5", "input", "Reshape"),
    ),
    (
        "Concat of halves of one convolution",
        [Block("conv"), Block("copy", variant=4), Block("add", other=2)],
        ("R5", "input", "Concat"),
    ),
]


@pytest.mark.parametrize(("blocks", "expected"), [c[1:] for c in RESIDUAL], ids=[c[0] for c in RESIDUAL])
def test_residual(blocks: Sequence[Block], expected: Answer) -> None:
    # Adds inside written-out activations come first.
    assert [a for a in truth(*blocks) if a[0] != "R1"] == [expected]


FLOAT: list[tuple[str, Sequence[Block], Answer]] = [
    ("both operands from one convolution", [Block("self_add")], NONE),
    ("the same through BN and SiLU", [Block("self_add", activation="silu", norm=True)], NONE),
    ("a tensor plus itself", [Block("conv"), Block("add")], NONE),
    ("gate at the end of the branch", [Block("inverted_bottleneck", activation="relu", variant=2)], NONE),
    ("transformer MLP by MatMul", [Block("mlp", activation="gelu")], NONE),
    ("transformer MLP by Gemm after a convolution", [Block("conv"), Block("mlp", variant=1)], NONE),
    ("two graph inputs", [Block("add", other=1)], NONE),
    ("Sub", [Block("conv"), Block("sub", other=1)], ("R1", None, None)),
    ("Sum of three", [Block("conv"), Block("sum_of_three", other=1)], ("R1", None, None)),
    ("broadcast gate", [Block("conv"), Block("broadcast_add")], ("R1", None, None)),
    ("bias", [Block("conv"), Block("constant", variant=1)], ("R1", None, None)),
]


@pytest.mark.parametrize(("blocks", "expected"), [c[1:] for c in FLOAT], ids=[c[0] for c in FLOAT])
def test_not_residual(blocks: Sequence[Block], expected: Answer) -> None:
    labels = truth(*blocks, inputs=2)
    assert expected in labels
    assert all(skip is None for _, skip, _ in labels)


def test_nested_residuals() -> None:
    """x + f(x + g(x)): the inner Add has no backbone, the outer trunk is f."""
    blocks = [Block("identity"), Block("conv"), Block("add", other=2)]
    assert truth(*blocks) == [("R5", "input", "Conv"), ("R5", "input", "Conv")]


def test_chained_residuals_and_an_add_of_an_add() -> None:
    assert truth(Block("identity"), Block("identity")) == [("R5", "input", "Conv"), ("R5", "Add", "Conv")]
    assert truth(Block("multi_branch", norm=True)) == [("R7", "BatchNormalization", "BatchNormalization"), NONE]


def test_branches_from_two_graph_inputs() -> None:
    """No common fork: lengths are counted from a virtual root."""
    assert truth(Block("fuse", other=1), inputs=2) == [("R7", "Conv", "Conv")]
    assert truth(Block("fuse", other=1, activation="relu"), inputs=2) == [("R6", "Conv", "Conv")]


def test_the_longer_branch_is_the_trunk_in_either_order() -> None:
    for swap in (False, True):
        labelled = build(Topology((Block("projection", activation="relu", variant=1, swap=swap),)))
        (add,) = labelled.adds
        (conv,) = [n for n in labelled.model.graph.node if n.output[0] == add.skip]
        kernel = next(tuple(a.ints) for a in conv.attribute if a.name == "kernel_shape")
        assert kernel == (1, 1)
        assert add.inputs.index(add.trunk or "") == int(swap)


def test_one_skip_for_several_adds() -> None:
    blocks = (Block("activation", activation="relu"), Block("conv"), Block("add", other=1), Block("conv", source=2))
    labelled = build(Topology((*blocks, Block("add", other=3))))
    assert [a.skip for a in labelled.adds] == ["relu_0", "relu_0"]


def test_equal_branches_are_a_tie() -> None:
    labelled = build(Topology((Block("conv"), Block("conv", source=1), Block("add", other=1))))
    (add,) = labelled.adds
    assert (add.rule, add.tie, add.skip, add.trunk) == ("R7", True, None, None)


def test_an_identity_lengthens_no_branch() -> None:
    """Conv against Conv-Identity is a tie; against Conv-Relu it is decided."""
    plain = (Block("conv"), Block("conv", source=1))
    (tied,) = build(Topology((*plain, Block("copy"), Block("add", other=2)))).adds
    (decided,) = build(Topology((*plain, Block("activation", activation="relu"), Block("add", other=2)))).adds
    assert tied.tie
    assert (decided.rule, decided.trunk) == ("R6", "relu_2")


def test_a_pool_without_its_pattern_ends_the_walk() -> None:
    blocks = (Block("activation", activation="relu"), Block("max_pool", variant=1), Block("add", other=1))
    assert [a for a in truth(*blocks) if a[1] is not None] == [("R5", "MaxPool", "Conv")]
    pattern = (Block("max_pool", norm=True), Block("copy", variant=5), Block("add", other=2))
    assert truth(*pattern) == [("R5", "input", "Resize")]


def test_labels_identify_adds_of_nameless_nodes() -> None:
    labelled = build(Topology((Block("identity"), Block("identity")), node_names="unnamed"))
    assert [a.node for a in labelled.adds] == ["", ""]
    assert len({a.output for a in labelled.adds}) == 2
