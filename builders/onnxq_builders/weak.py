"""Weakly typed models: the computation is sound (or refused by the runtime on purpose), the metadata isn't.

Each model is built healthy and then given the faults that its docstring lists, and no others.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto, TensorProto, helper

from onnxq_builders._blocks import basic_block
from onnxq_builders._graph import Dim, Graph
from onnxq_builders._layers import classifier, conv, conv_unit, gemm, reshape, transpose


def weakly_typed_topk(
    *,
    k: str = "computed",
    channels: int = 32,
    classes: int = 16,
    wanted: int = 20,
    size: int = 16,
    indices_type: int = TensorProto.FLOAT,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """Scores -> TopK -> Cast(indices), where shape inference can't get through TopK.

        x -> conv1 -> relu1 -> .. -> scores [N, classes] -> topk -> values
                                                              +-> indices_cast -> indices

    Faults:

    - `k="above_axis"`: K is the constant `wanted`, more than the `classes` that there are. onnx's strict inference
      raises, and onnxruntime refuses to load the model; its types are known nevertheless.
    - `k="computed"`: K is min(wanted, classes), worked out at run time from Shape(scores) by Gather, Concat and
      ReduceMin. The model runs, but its inferred shapes end at TopK.
    - Both outputs are declared with their right element type and rank, and dims that have neither value nor symbol.

    Args:
        k: "above_axis" or "computed".
        channels: Channels of the convolutions.
        classes: Length of the axis that TopK runs along.
        wanted: How many values are asked for.
        size: Height and width of the input [batch, channels, size, size].
        indices_type: `TensorProto.DataType` that the indices are cast to.
        batch: First dim, a number or a symbol.
        opset: Version of the default operator set.
        seed: Seed of the weights.
    """
    if k not in ("above_axis", "computed"):
        raise ValueError(f"k is {k!r}; it can be 'above_axis' or 'computed'")
    if k == "above_axis" and wanted <= classes:
        raise ValueError(f"wanted is {wanted}; it must be above the axis, {classes}")
    g = Graph("weakly_typed_topk", seed=seed, opset=opset)
    x = g.input("x", (batch, channels, size, size))
    y = conv_unit(g, x, channels, "", "1")
    scores = classifier(g, conv_unit(g, y, channels, "", "2", stride=2), classes)
    amount = g.constant("k", [wanted]) if k == "above_axis" else _at_most_axis(g, scores, wanted)
    values, raw = g.node_with_outputs("TopK", [scores, amount], ["topk_values", "topk_indices"], name="topk", axis=-1)
    indices = g.node("Cast", [raw], "indices_cast", to=indices_type)
    model = g.model({"values": values, "indices": indices}, check=False)
    _declare(model, "values", TensorProto.FLOAT, (None, None))
    _declare(model, "indices", indices_type, (None, None))
    return model


def stale_rank0_output(
    *,
    symbolic: bool = False,
    declared_shape: Sequence[int | str] = (),
    channels: int = 32,
    classes: int = 16,
    size: int = 16,
    batch: int | str | None = None,
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """An output that is declared with the wrong rank, while what computes it is plain.

        x -> conv1 -> relu1 -> conv2 -> relu2 -> pool -> flatten -> gemm = y
                                                              +---> gemm = probabilities (with `symbolic`)

    Faults: "y" is truly [batch, classes] and declared `declared_shape`, by default rank 0. There is no value_info.
    With `symbolic` the output "probabilities" stands beside it, healthy: ["batch", 10], and must keep that symbol.
    The model runs in onnxruntime.

    Args:
        symbolic: Add the healthy output, and make the batch a symbol.
        declared_shape: What "y" is declared as: (), or for instance (0, 1), (-1, 2), ("a", "b", "c").
        channels: Channels of the convolutions.
        classes: Second dim of "y".
        size: Height and width of the input [batch, channels, size, size].
        batch: First dim, a number or a symbol; "batch" with `symbolic`, else 1, unless given.
        opset: Version of the default operator set.
        seed: Seed of the weights.
    """
    g = Graph("stale_rank0_output", seed=seed, opset=opset)
    x = g.input("x", (batch if batch is not None else ("batch" if symbolic else 1), channels, size, size))
    y = conv_unit(g, conv_unit(g, x, channels, "", "1"), channels, "", "2", stride=2)
    outputs = {"y": classifier(g, y, classes)}
    if symbolic:
        logits = gemm(g, "head_flatten", channels, 10, "probabilities_gemm")
        outputs["probabilities"] = g.node("Softmax", [logits], "softmax", axis=-1)
    model = g.model(outputs)
    _declare(model, "y", TensorProto.FLOAT, declared_shape)
    return model


def tf_detection(
    *,
    k: str = "computed",
    wrong_types: bool = False,
    channels: int = 32,
    classes: int = 16,
    wanted: int = 20,
    size: int = 32,
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """A small detector as TensorFlow exports look, with all weaknesses of metadata at once.

        image [?, size, size, 3] -> Transpose -> stem -> block1 -> block2 -+-> box head   -> boxes [N, A, 4]
                                                                           +-> class head -> scores [N, A, classes]
        best score per anchor -> TopK(K) -> GatherND boxes, GatherElements classes

    "block1_add": skip is "stem_relu6", trunk "block1_bn2". "block2_add": both convolutions could take the Add in; the
    trunk is "block2_bn2", the skip "block2_shortcut_bn".

    Outputs, and how each is declared:

    | output | truly | declared |
    |---|---|---|
    | detection_boxes | float [N, K, 4] | rank 0 |
    | detection_scores | float [N, K] | rank 3, [1, 1, 1] |
    | detection_classes | float [N, K] | no shape at all, which onnx's checker refuses |
    | num_detections | float [1] | rank 0 |
    | raw_scores | float [N, A, classes] | [None, A, classes], healthy but for the dim without a name |

    Further faults: the first dim of "image" has neither value nor symbol. The value_info of "box_head_conv" has the
    wrong rank, that of "block1_add" a wrong size, that of "removed" belongs to no tensor. K is min(wanted, A), computed
    at run time, so nothing is known behind TopK; the model runs in onnxruntime.

    Args:
        k: "computed", or "above_axis" for a constant K of A + 1, with which onnxruntime refuses the model.
        wrong_types: Also declare wrong element types behind a Cast: "detection_classes" as int64, and the value_info of
            "classes_cast_in" as int32. onnxruntime refuses to load such a model; its computation is sound.
        channels: Channels of the stem; the second block has twice as many.
        classes: Number of classes.
        wanted: How many detections are asked for.
        size: Height and width of the image.
        opset: Version of the default operator set.
        seed: Seed of the weights.
    """
    if k not in ("above_axis", "computed"):
        raise ValueError(f"k is {k!r}; it can be 'above_axis' or 'computed'")
    g = Graph("tf_detection", seed=seed, opset=opset)
    image = g.input("image", (None, size, size, 3))
    y = transpose(g, image, (0, 3, 1, 2), "to_nchw", channels=3)
    y = conv_unit(g, y, channels, "stem", stride=2, act="relu6")
    y = basic_block(g, y, channels, "block1", act="relu6")
    y = basic_block(g, y, channels * 2, "block2", stride=2, act="relu6")
    anchors = (size // 4) ** 2
    boxes = _head(g, y, 4, "box_head")
    scores = g.node("Sigmoid", [_head(g, y, classes, "class_head")], "scores")

    best = _reduce(g, "ReduceMax", scores, (2,), "best_score")
    amount = g.constant("k", [anchors + 1]) if k == "above_axis" else _at_most_axis(g, best, wanted)
    top_scores, top = g.node_with_outputs("TopK", [best, amount], ["top_scores", "top_anchors"], name="topk", axis=1)
    top_boxes = g.node("GatherND", [boxes, _unsqueeze(g, top, (2,), "top_index")], "top_boxes", batch_dims=1)
    best_class = g.node("ArgMax", [scores], "best_class", axis=2, keepdims=0)
    top_class = g.node("GatherElements", [best_class, top], "top_class", axis=1)
    small_class = g.node("Cast", [top_class], "classes_cast_in", to=TensorProto.INT64)
    classes_out = g.node("Cast", [small_class], "classes_cast", to=TensorProto.FLOAT)
    count = g.node("Cast", [_length(g, top, "top_count")], "count_cast", to=TensorProto.FLOAT)
    model = g.model(
        {
            "detection_boxes": top_boxes,
            "detection_scores": top_scores,
            "detection_classes": classes_out,
            "num_detections": count,
            "raw_scores": scores,
        },
        check=False,
    )
    _declare(model, "detection_boxes", TensorProto.FLOAT, ())
    _declare(model, "detection_scores", TensorProto.FLOAT, (1, 1, 1))
    _declare(model, "detection_classes", TensorProto.INT64 if wrong_types else TensorProto.FLOAT, None)
    _declare(model, "num_detections", TensorProto.FLOAT, ())
    _declare(model, "raw_scores", TensorProto.FLOAT, (None, anchors, classes))
    stale = [("box_head_conv", TensorProto.FLOAT, (anchors, 4)), ("block1_add", TensorProto.FLOAT, (1, channels, 7, 7))]
    stale.append(("removed", TensorProto.FLOAT, (3,)))
    if wrong_types:
        stale.append(("classes_cast_in", TensorProto.INT32, (1, wanted)))
    model.graph.value_info.extend(helper.make_tensor_value_info(*entry) for entry in stale)
    return model


def _head(g: Graph, x: str, values: int, name: str) -> str:
    """A prediction per position: [N, C, H, W] -> Conv 3x3 -> NHWC -> [N, H * W, values]."""
    y = conv(g, x, values, f"{name}_conv", bias=True, gain=1.0)
    return reshape(g, transpose(g, y, (0, 2, 3, 1), f"{name}_nhwc"), (0, -1, values), f"{name}_flat")


def _at_most_axis(g: Graph, x: str, wanted: int) -> str:
    """min(wanted, x.shape[1]) as TensorFlow exports compute it, int64 [1]: shape inference can't see through."""
    both = g.node("Concat", [_length(g, x, "k_length"), g.constant("k_wanted", [wanted])], "k_both", axis=0)
    narrow = g.node("Cast", [both], "k_narrow", to=TensorProto.INT32)
    least = _reduce(g, "ReduceMin", narrow, (0,), "k_least", keepdims=1)
    return g.node("Cast", [least], "k", to=TensorProto.INT64)


def _length(g: Graph, x: str, name: str) -> str:
    """x.shape[1] as int64 [1]."""
    return g.node("Gather", [g.node("Shape", [x], f"{name}_shape"), g.constant(f"{name}_axis", [1])], name)


def _reduce(g: Graph, op: str, x: str, axes: Sequence[int], name: str, keepdims: int = 0) -> str:
    """ReduceMin or ReduceMax; from opset 18 on the axes are an input."""
    if g.opset < 18:
        return g.node(op, [x], name, axes=list(axes), keepdims=keepdims)
    return g.node(op, [x, g.constant(f"{name}_axes", axes)], name, keepdims=keepdims)


def _unsqueeze(g: Graph, x: str, axes: Sequence[int], name: str) -> str:
    return g.node("Unsqueeze", [x, g.constant(f"{name}_axes", axes)], name)


def _declare(model: ModelProto, output: str, elem_type: int, shape: Sequence[Dim] | None) -> None:
    """Declare a graph output as given; a shape of None leaves the shape field out."""
    (info,) = (info for info in model.graph.output if info.name == output)
    info.CopyFrom(helper.make_tensor_value_info(output, elem_type, None if shape is None else list(shape)))
