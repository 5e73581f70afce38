"""Builders of small float ONNX models for testing quantizers and graph passes. They need onnx and numpy only.

Every builder is a function of keyword arguments with defaults that returns a new `onnx.ModelProto`; the same arguments
give the same bytes. Families:

- `residual` and `merges`: one residual pattern each, and merges that look like one.
- `weak`: models whose declared types and shapes are wrong or missing.
- `networks`: faithful small versions of real networks.

`build("residual.convtranspose_conv", channels=16)` builds by name; `BUILDERS` has all names. Each builder is also a
function of this package. Importing the package doesn't import onnx; the first use of a builder does.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxq_builders.merges import (
        add_of_one_conv,
        broadcast_gate,
        concat_branch,
        equal_branches,
        repvgg_block,
        reused_trunk,
        squeeze_excite_block,
        sum_block,
    )
    from onnxq_builders.networks.convnext import convnext
    from onnxq_builders.networks.densenet import densenet
    from onnxq_builders.networks.efficientnet import efficientnet
    from onnxq_builders.networks.efficientvit import efficientvit
    from onnxq_builders.networks.hrnet import hrnet
    from onnxq_builders.networks.inception import inception
    from onnxq_builders.networks.mobilenet import mobilenet_v2, mobilenet_v3
    from onnxq_builders.networks.resnet import resnet, resnet_bottleneck, resnext
    from onnxq_builders.networks.shufflenet import shufflenet_v2
    from onnxq_builders.networks.unet import unet
    from onnxq_builders.networks.vit import vit
    from onnxq_builders.networks.yolo import yolo_c2f
    from onnxq_builders.networks.yolo_detector import yolo_detector
    from onnxq_builders.registry import BUILDERS, build
    from onnxq_builders.residual import (
        bottleneck,
        chained_blocks,
        convtranspose_conv_residual,
        graph_input_skip,
        identity_block,
        layer_scale_block,
        nested_blocks,
        preactivation_block,
        projection_block,
        silu_block,
        two_sources,
    )
    from onnxq_builders.weak import stale_rank0_output, tf_detection, weakly_typed_topk

FIXTURE_BUILDERS: Mapping[str, str] = MappingProxyType(
    {
        "convtranspose_conv_residual": "residual.convtranspose_conv",
        "identity_block": "residual.identity",
        "projection_block": "residual.projection",
        "preactivation_block": "residual.preactivation",
        "bottleneck": "residual.bottleneck",
        "two_sources": "residual.two_sources",
        "silu_block": "residual.silu",
        "graph_input_skip": "residual.graph_input_skip",
        "chained_blocks": "residual.chained",
        "nested_blocks": "residual.nested",
        "squeeze_excite_block": "residual.squeeze_excite",
        "layer_scale_block": "residual.layer_scale",
        "add_of_one_conv": "residual.add_of_one_conv",
        "broadcast_gate": "residual.broadcast_gate",
        "sum_block": "residual.sum",
        "equal_branches": "residual.equal_branches",
        "repvgg_block": "residual.repvgg",
        "reused_trunk": "residual.reused_trunk",
        "concat_branch": "residual.concat_branch",
        "weakly_typed_topk": "weak.topk",
        "stale_rank0_output": "weak.stale_rank0_output",
        "tf_detection": "weak.detection",
        "resnet": "resnet.basic",
        "resnet_bottleneck": "resnet.bottleneck",
        "resnext": "resnext.basic",
        "mobilenet_v2": "mobilenet.v2",
        "mobilenet_v3": "mobilenet.v3",
        "efficientnet": "efficientnet.basic",
        "efficientvit": "efficientvit.basic",
        "convnext": "convnext.basic",
        "vit": "vit.basic",
        "unet": "unet.basic",
        "yolo_c2f": "yolo.c2f",
        "yolo_detector": "yolo.detector",
        "hrnet": "hrnet.basic",
        "densenet": "densenet.basic",
        "inception": "inception.basic",
        "shufflenet_v2": "shufflenet.v2",
    }
)
"""Name of each builder as a function of this package, and as stem of a fixture -> its name in `BUILDERS`."""

__all__ = [
    "BUILDERS",
    "FIXTURE_BUILDERS",
    "build",
    "add_of_one_conv",
    "bottleneck",
    "broadcast_gate",
    "chained_blocks",
    "concat_branch",
    "convnext",
    "convtranspose_conv_residual",
    "densenet",
    "efficientnet",
    "efficientvit",
    "equal_branches",
    "graph_input_skip",
    "hrnet",
    "identity_block",
    "inception",
    "layer_scale_block",
    "mobilenet_v2",
    "mobilenet_v3",
    "nested_blocks",
    "preactivation_block",
    "projection_block",
    "repvgg_block",
    "resnet",
    "resnet_bottleneck",
    "resnext",
    "reused_trunk",
    "shufflenet_v2",
    "silu_block",
    "squeeze_excite_block",
    "stale_rank0_output",
    "sum_block",
    "tf_detection",
    "two_sources",
    "unet",
    "vit",
    "weakly_typed_topk",
    "yolo_c2f",
    "yolo_detector",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    registry = importlib.import_module("onnxq_builders.registry")
    return registry.BUILDERS[FIXTURE_BUILDERS[name]] if name in FIXTURE_BUILDERS else getattr(registry, name)
