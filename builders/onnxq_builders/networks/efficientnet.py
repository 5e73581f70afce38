"""EfficientNet."""

from __future__ import annotations

from onnx import ModelProto

from onnxq_builders._blocks import begin, end, inverted_residual
from onnxq_builders._layers import classifier, conv_unit


def efficientnet(
    *,
    width: int = 16,
    expand: int = 4,
    activation: str = "silu",
    batch_norm: bool = True,
    swap: bool = False,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """EfficientNet: MBConv blocks with SiLU and squeeze-excite. The output "y" is [batch, classes].

    | Add | skip | trunk |
    |---|---|---|
    | block3_add | block2_project_bn | block3_project_bn |
    | block5_add | block4_project_bn | block5_project_bn |
    | block6_add | block5_add | block6_project_bn |

    The gate "block<n>_se_scale" stands before the projection, so it doesn't part the Add from its convolution.
    """
    g, y = begin("efficientnet", 3, size, batch, opset, seed)
    y = conv_unit(g, y, width * 2, "stem", stride=2, act=activation, batch_norm=batch_norm)
    # Expansion, output channels, kernel, stride.
    plan = (
        (1, width, 3, 1),
        (expand, width * 2, 3, 2),
        (expand, width * 2, 3, 1),
        (expand, width * 3, 5, 2),
        (expand, width * 3, 5, 1),
        (expand, width * 3, 5, 1),
    )
    for number, (factor, out, kernel, stride) in enumerate(plan, start=1):
        y = inverted_residual(
            g,
            y,
            out,
            f"block{number}",
            expand=factor,
            kernel=kernel,
            stride=stride,
            act=activation,
            squeeze=max(g.channels[y] // 4, 4),
            squeeze_act=activation,
            batch_norm=batch_norm,
            swap=swap,
        )
    y = conv_unit(g, y, width * 8, "head", kernel=1, act=activation, batch_norm=batch_norm)
    return end(g, classifier(g, y, classes))
