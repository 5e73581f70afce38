"""MobileNetV2 and MobileNetV3."""

from __future__ import annotations

from onnx import ModelProto

from onnxq_builders._blocks import begin, end, inverted_residual
from onnxq_builders._layers import activate, classifier, conv_unit, gemm


def mobilenet_v2(
    *,
    width: int = 16,
    expand: int = 6,
    activation: str = "relu6",
    batch_norm: bool = True,
    swap: bool = False,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """MobileNetV2: inverted residuals with linear bottlenecks and Clip as Relu6. The output "y" is [batch, classes].

    | Add | skip | trunk |
    |---|---|---|
    | block3_add | block2_project_bn | block3_project_bn |
    | block4_add | block3_add | block4_project_bn |
    | block6_add | block5_project_bn | block6_project_bn |

    block1 has no expansion; block2 and block5 change size and channels, so these three have no Add.
    """
    g, y = begin("mobilenet_v2", 3, size, batch, opset, seed)
    y = conv_unit(g, y, width * 2, "stem", stride=2, act=activation, batch_norm=batch_norm)
    # Expansion, output channels, stride.
    plan = (
        (1, width, 1),
        (expand, width * 2, 2),
        (expand, width * 2, 1),
        (expand, width * 2, 1),
        (expand, width * 3, 2),
        (expand, width * 3, 1),
    )
    for number, (factor, out, stride) in enumerate(plan, start=1):
        y = inverted_residual(
            g,
            y,
            out,
            f"block{number}",
            expand=factor,
            stride=stride,
            act=activation,
            batch_norm=batch_norm,
            swap=swap,
        )
    y = conv_unit(g, y, width * 8, "head", kernel=1, act=activation, batch_norm=batch_norm)
    return end(g, classifier(g, y, classes))


def mobilenet_v3(
    *,
    width: int = 16,
    hardswish: str = "hardswish",
    batch_norm: bool = True,
    swap: bool = False,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """MobileNetV3: inverted residuals, some with squeeze-excite, with Relu early and HardSwish late.

    The output "y" is [batch, classes]. `hardswish` chooses the form: "hardswish" (the operator),
    "hardswish_hardsigmoid" or "hardswish_clip".

    | Add | skip | trunk |
    |---|---|---|
    | block1_add | stem_hardswish | block1_project_bn |
    | block3_add | block2_project_bn | block3_project_bn |
    | block5_add | block4_project_bn | block5_project_bn |

    The gates of block1, block4 and block5 stand before the projection, so they don't part an Add from its convolution.
    """
    g, y = begin("mobilenet_v3", 3, size, batch, opset, seed)
    y = conv_unit(g, y, width, "stem", stride=2, act=hardswish, batch_norm=batch_norm)
    # Expansion, output channels, kernel, stride, activation, channels inside the gate.
    plan = (
        (1, width, 3, 1, "relu", width // 2),
        (4, width * 2, 3, 2, "relu", 0),
        (3, width * 2, 3, 1, "relu", 0),
        (4, width * 3, 5, 2, hardswish, width * 2),
        (4, width * 3, 5, 1, hardswish, width * 2),
    )
    for number, (factor, out, kernel, stride, act, squeeze) in enumerate(plan, start=1):
        y = inverted_residual(
            g,
            y,
            out,
            f"block{number}",
            expand=factor,
            kernel=kernel,
            stride=stride,
            act=act,
            squeeze=squeeze,
            squeeze_gate="hardsigmoid",
            batch_norm=batch_norm,
            swap=swap,
        )
    y = conv_unit(g, y, width * 8, "head", kernel=1, act=hardswish, batch_norm=batch_norm)
    y = activate(g, classifier(g, y, width * 8), hardswish, "classifier")
    return end(g, gemm(g, y, width * 8, classes, "classifier_gemm"))
