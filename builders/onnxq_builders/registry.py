"""All builders by name, for corpus cases and fixtures, which name what they build and never import it themselves."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from onnx import ModelProto

from onnxq_builders import merges, residual, weak
from onnxq_builders.networks import (
    convnext,
    densenet,
    efficientnet,
    efficientvit,
    hrnet,
    inception,
    mobilenet,
    resnet,
    shufflenet,
    unet,
    vit,
    yolo,
    yolo_detector,
)

BUILDERS: Mapping[str, Callable[..., ModelProto]] = MappingProxyType(
    {
        "residual.convtranspose_conv": residual.convtranspose_conv_residual,
        "residual.identity": residual.identity_block,
        "residual.projection": residual.projection_block,
        "residual.preactivation": residual.preactivation_block,
        "residual.bottleneck": residual.bottleneck,
        "residual.two_sources": residual.two_sources,
        "residual.silu": residual.silu_block,
        "residual.graph_input_skip": residual.graph_input_skip,
        "residual.chained": residual.chained_blocks,
        "residual.nested": residual.nested_blocks,
        "residual.squeeze_excite": merges.squeeze_excite_block,
        "residual.layer_scale": residual.layer_scale_block,
        "residual.add_of_one_conv": merges.add_of_one_conv,
        "residual.broadcast_gate": merges.broadcast_gate,
        "residual.sum": merges.sum_block,
        "residual.equal_branches": merges.equal_branches,
        "residual.repvgg": merges.repvgg_block,
        "residual.reused_trunk": merges.reused_trunk,
        "residual.concat_branch": merges.concat_branch,
        "weak.topk": weak.weakly_typed_topk,
        "weak.stale_rank0_output": weak.stale_rank0_output,
        "weak.detection": weak.tf_detection,
        "resnet.basic": resnet.resnet,
        "resnet.bottleneck": resnet.resnet_bottleneck,
        "resnext.basic": resnet.resnext,
        "mobilenet.v2": mobilenet.mobilenet_v2,
        "mobilenet.v3": mobilenet.mobilenet_v3,
        "efficientnet.basic": efficientnet.efficientnet,
        "efficientvit.basic": efficientvit.efficientvit,
        "convnext.basic": convnext.convnext,
        "vit.basic": vit.vit,
        "unet.basic": unet.unet,
        "yolo.c2f": yolo.yolo_c2f,
        "yolo.detector": yolo_detector.yolo_detector,
        "hrnet.basic": hrnet.hrnet,
        "densenet.basic": densenet.densenet,
        "inception.basic": inception.inception,
        "shufflenet.v2": shufflenet.shufflenet_v2,
    }
)
"""Builders by "family.name"."""


def build(name: str, **args: Any) -> ModelProto:
    """Build a model by the name of its builder.

    Args:
        name: A name in `BUILDERS`.
        **args: Keyword arguments of the builder.

    Raises:
        ValueError: There is no such builder, or it has no such argument. The message lists what there is, near misses
            first.
    """
    if name not in BUILDERS:
        raise ValueError(_unknown("builder", name, BUILDERS))
    builder = BUILDERS[name]
    allowed = inspect.signature(builder).parameters
    for arg in args:
        if arg not in allowed:
            raise ValueError(f"builder {name!r}: {_unknown('argument', arg, allowed)}")
    return builder(**args)


def _unknown(what: str, name: str, allowed: Iterable[str]) -> str:
    known = list(allowed)
    near = difflib.get_close_matches(name, known, n=3)
    # "convtranspose_conv" for "residual.convtranspose_conv" is too far for the similarity of whole words.
    near += [k for k in known if k not in near and name and name in k.split(".")]
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    return f"unknown {what} {name!r}{hint} There are: {', '.join(sorted(known))}"
