"""The residual models have the patterns and names that their docstrings promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from builder_models import run

import onnxq_builders
from onnxq_builders import build
from onnxq_builders._layers import ACTIVATIONS

# Builder, arguments, and for each merge its inputs: trunk first where there is one.
MERGES: list[tuple[str, dict[str, Any], dict[str, list[str]]]] = [
    ("residual.convtranspose_conv", {}, {"add": ["bn2", "skip"]}),
    ("residual.convtranspose_conv", {"batch_norm": False}, {"add": ["conv2", "skip"]}),
    ("residual.convtranspose_conv", {"swap": True}, {"add": ["skip", "bn2"]}),
    ("residual.identity", {}, {"add": ["bn2", "stem_relu"]}),
    ("residual.identity", {"skip_op": "Tanh"}, {"add": ["bn2", "skip_op"]}),
    ("residual.projection", {}, {"add": ["bn2", "shortcut_bn"]}),
    ("residual.preactivation", {"blocks": 2}, {
        "block1_add": ["block1_conv2", "stem_conv"],
        "block2_add": ["block2_conv2", "block1_add"],
    }),
    ("residual.bottleneck", {}, {"add": ["bn3", "stem_relu"]}),
    ("residual.two_sources", {}, {"add": ["relu2", "up_relu1"]}),
    ("residual.silu", {}, {"add": ["silu1", "stem_relu"]}),
    ("residual.graph_input_skip", {}, {"add": ["conv1", "x"]}),
    ("residual.chained", {"blocks": 2}, {
        "block1_add": ["block1_bn2", "stem_relu"],
        "block2_add": ["block2_bn2", "block1_relu"],
    }),
    ("residual.nested", {}, {"inner_add": ["bn1", "stem_relu"], "outer_add": ["bn2", "stem_relu"]}),
    ("residual.squeeze_excite", {}, {"add": ["se_scale", "stem_relu"]}),
    ("residual.squeeze_excite", {"gate": "inside"}, {"add": ["bn2", "stem_relu"]}),
    ("residual.layer_scale", {}, {"add": ["layer_scale", "stem_relu"]}),
    ("residual.add_of_one_conv", {}, {"add": ["sigmoid", "bn1"]}),
    ("residual.broadcast_gate", {}, {"add": ["relu1", "gate_conv"]}),
    ("residual.sum", {"terms": 3}, {"add": ["branch1_bn2", "branch2_bn2", "stem_relu"]}),
    ("residual.equal_branches", {}, {"add": ["left_bn", "right_bn"]}),
    ("residual.repvgg", {}, {"inner_add": ["dense_bn", "point_bn"], "outer_add": ["inner_add", "stem_relu"]}),
    ("residual.reused_trunk", {}, {"add1": ["bn1", "stem_relu"], "add2": ["bn1", "relu1"]}),
    ("residual.concat_branch", {}, {"add": ["concat", "stem_relu"]}),
    ("weak.detection", {}, {
        "block1_add": ["block1_bn2", "stem_relu6"],
        "block2_add": ["block2_bn2", "block2_shortcut_bn"],
    }),
    ("resnet.basic", {"blocks": [1, 2]}, {
        "stage1_block1_add": ["stage1_block1_bn2", "stem_pool"],
        "stage2_block1_add": ["stage2_block1_bn2", "stage2_block1_shortcut_bn"],
        "stage2_block2_add": ["stage2_block2_bn2", "stage2_block1_relu"],
    }),
    ("resnet.bottleneck", {"blocks": [2]}, {
        "stage1_block1_add": ["stage1_block1_bn3", "stage1_block1_shortcut_bn"],
        "stage1_block2_add": ["stage1_block2_bn3", "stage1_block1_relu"],
    }),
    ("resnext.basic", {"blocks": [1]}, {"stage1_block1_add": ["stage1_block1_bn3", "stage1_block1_shortcut_bn"]}),
    ("mobilenet.v2", {}, {
        "block3_add": ["block3_project_bn", "block2_project_bn"],
        "block4_add": ["block4_project_bn", "block3_add"],
        "block6_add": ["block6_project_bn", "block5_project_bn"],
    }),
    ("mobilenet.v3", {}, {
        "block1_add": ["block1_project_bn", "stem_hardswish"],
        "block3_add": ["block3_project_bn", "block2_project_bn"],
        "block5_add": ["block5_project_bn", "block4_project_bn"],
    }),
    ("efficientnet.basic", {}, {
        "block3_add": ["block3_project_bn", "block2_project_bn"],
        "block5_add": ["block5_project_bn", "block4_project_bn"],
        "block6_add": ["block6_project_bn", "block5_add"],
    }),
    ("efficientvit.basic", {}, {
        "block1_add": ["block1_project_bn", "stem_hardswish"],
        "att1_add": ["att1_project_bn", "block2_project_bn"],
        "att1_local_add": ["att1_local_project_bn", "att1_add"],
        "att2_add": ["att2_project_bn", "att1_local_add"],
        "att2_local_add": ["att2_local_project_bn", "att2_add"],
    }),
    ("convnext.basic", {"conv_mlp": True, "blocks": 1}, {
        "stage1_block1_add": ["stage1_block1_scale", "stem_norm_nchw"],
        "stage2_block1_add": ["stage2_block1_scale", "downsample"],
    }),
    ("vit.basic", {"blocks": 1}, {
        "block1_attn_add": ["block1_proj_bias_add", "position"],
        "block1_mlp_add": ["block1_fc2_bias_add", "block1_attn_add"],
    }),
    ("unet.basic", {}, {}),
    ("unet.basic", {"add_skips": True}, {"dec2_add": ["dec2_up", "enc2_relu2"], "dec1_add": ["dec1_up", "enc1_relu2"]}),
    ("yolo.c2f", {}, {
        "c2f1_m1_add": ["c2f1_m1_silu2", "c2f1_b"],
        "c2f1_m2_add": ["c2f1_m2_silu2", "c2f1_m1_add"],
        "c2f2_m1_add": ["c2f2_m1_silu2", "c2f2_b"],
        "c2f2_m2_add": ["c2f2_m2_silu2", "c2f2_m1_add"],
    }),
    ("yolo.detector", {}, {
        "c2f1_m1_add": ["c2f1_m1_silu2", "c2f1_b"],
        "c2f2_m1_add": ["c2f2_m1_silu2", "c2f2_b"],
        "center_sum": ["left_top", "right_bottom"],
    }),
    ("densenet.basic", {}, {}),
    ("inception.basic", {}, {}),
    ("shufflenet.v2", {}, {}),
    ("hrnet.basic", {}, {
        "s2_stream1_block1_add": ["s2_stream1_block1_bn2", "stem_relu"],
        "s2_stream2_block1_add": ["s2_stream2_block1_bn2", "s2_new_relu"],
        "s2_fuse1_add1": ["s2_stream1_block1_relu", "s2_up2to1"],
        "s2_fuse2_add1": ["s2_down1to2_bn1", "s2_stream2_block1_relu"],
        "s3_stream1_block1_add": ["s3_stream1_block1_bn2", "s2_fuse1_relu"],
        "s3_stream2_block1_add": ["s3_stream2_block1_bn2", "s2_fuse2_relu"],
        "s3_stream3_block1_add": ["s3_stream3_block1_bn2", "s3_new_relu"],
        "s3_fuse1_add1": ["s3_stream1_block1_relu", "s3_up2to1"],
        "s3_fuse1_add2": ["s3_fuse1_add1", "s3_up3to1"],
        "s3_fuse2_add1": ["s3_down1to2_bn1", "s3_stream2_block1_relu"],
        "s3_fuse2_add2": ["s3_fuse2_add1", "s3_up3to2"],
        "s3_fuse3_add1": ["s3_down1to3_bn2", "s3_down2to3_bn1"],
        "s3_fuse3_add2": ["s3_fuse3_add1", "s3_stream3_block1_relu"],
    }),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "expected"), MERGES, ids=str)
def test_merges_have_the_documented_inputs(name: str, args: dict[str, Any], expected: dict[str, list[str]]) -> None:
    graph = build(name, **args).graph
    constants = {initializer.name for initializer in graph.initializer}
    found = {
        node.name: list(node.input)
        for node in graph.node
        if node.op_type in ("Add", "Sum") and not constants & set(node.input) and "gelu" not in node.name
    }
    assert found == expected


def test_names_renames_nodes_and_tensors_alike() -> None:
    names = {"skip": "zz", "bn2": "aa", "add": "join", "x": "image"}
    graph = onnxq_builders.convtranspose_conv_residual(names=names, prefix="m.").graph
    (node,) = (node for node in graph.node if node.op_type == "Add")
    assert node.name == "m.join"
    assert list(node.input) == ["m.aa", "m.zz"]
    assert [i.name for i in graph.input] == ["m.image"]


@pytest.mark.parametrize(("names", "message"), [({"sklp": "a"}, "sklp"), ({"skip": "bn2"}, "same name")])
def test_names_that_cannot_be_are_refused(names: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        onnxq_builders.convtranspose_conv_residual(names=names)


@pytest.mark.parametrize("kind", sorted(ACTIVATIONS))
def test_every_activation_makes_a_running_model(kind: str) -> None:
    model = onnxq_builders.silu_block(activation=kind, batch_norm=False, opset=20, channels=16)
    onnx.checker.check_model(model, full_check=True)
    (result,) = run(model).values()
    assert np.isfinite(result).all()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("hardswish", "hardswish_hardsigmoid"),
        ("hardswish", "hardswish_clip"),
        ("gelu", "gelu_op"),
        ("mish", "mish_op"),
    ],
)
def test_written_out_activations_compute_the_same(one: str, other: str) -> None:
    first, second = (run(onnxq_builders.silu_block(activation=kind, opset=20)) for kind in (one, other))
    np.testing.assert_allclose(first["y"], second["y"], rtol=1e-4, atol=1e-4)


def test_activation_that_the_opset_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="Gelu needs opset 20"):
        onnxq_builders.silu_block(activation="gelu_op", opset=17)
    with pytest.raises(ValueError, match="unknown activation 'relu7'"):
        onnxq_builders.silu_block(activation="relu7")


@pytest.mark.parametrize(
    ("weights", "initializers", "equal"), [("different", 2, False), ("equal", 2, True), ("shared", 1, True)]
)
def test_equal_branches_share_what_they_say(weights: str, initializers: int, equal: bool) -> None:
    graph = onnxq_builders.equal_branches(weights=weights).graph
    convs = {node.name: node.input[1] for node in graph.node if node.op_type == "Conv"}
    used = {convs["left_conv"], convs["right_conv"]}
    assert len(used) == initializers
    values = [initializer.raw_data for initializer in graph.initializer if initializer.name in used]
    assert (len(set(values)) == 1) is equal


def test_shared_weights_are_one_initializer() -> None:
    graph = onnxq_builders.chained_blocks(blocks=2, shared_weights=True).graph
    assert [node.input[1] for node in graph.node if node.op_type == "Conv"][1:] == ["shared_weight"] * 4
