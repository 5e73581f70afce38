"""The weak models have exactly the faults that they promise."""

from __future__ import annotations

import onnx
import pytest
from builder_models import declared_shape, run
from onnx import ModelProto, TensorProto, shape_inference

from onnxq_builders import stale_rank0_output, tf_detection, weakly_typed_topk


def outputs(model: ModelProto) -> dict[str, onnx.ValueInfoProto]:
    return {info.name: info for info in model.graph.output}


def infer_strictly(model: ModelProto) -> ModelProto:
    return shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)


@pytest.mark.parametrize("opset", [17, 18])
def test_topk_with_computed_k_runs_and_hides_its_shapes(opset: int) -> None:
    model = weakly_typed_topk(k="computed", opset=opset)
    assert {name: declared_shape(info) for name, info in outputs(model).items()} == {
        "values": [None, None],
        "indices": [None, None],
    }
    assert {name: value.shape for name, value in run(model).items()} == {"values": (2, 16), "indices": (2, 16)}
    for info in infer_strictly(model).graph.output:
        assert not any(dim.HasField("dim_value") for dim in info.type.tensor_type.shape.dim)


def test_topk_above_its_axis_is_refused_by_inference_and_runtime() -> None:
    model = weakly_typed_topk(k="above_axis")
    onnx.checker.check_model(model)
    with pytest.raises(onnx.shape_inference.InferenceError, match="Axis has less than the requested k elements"):
        infer_strictly(model)
    with pytest.raises(Exception, match="Axis has less than the requested k elements"):
        run(model)


def test_topk_is_sound_but_for_its_k() -> None:
    model = weakly_typed_topk(k="above_axis", wanted=20)
    (k,) = (initializer for initializer in model.graph.initializer if initializer.name == "k")
    k.raw_data = (5).to_bytes(8, "little")
    infer_strictly(model)
    assert {value.shape for value in run(model).values()} == {(2, 5)}


@pytest.mark.parametrize(
    ("k", "wanted", "message"), [("above", 20, "above_axis"), ("above_axis", 16, "above the axis")]
)
def test_topk_arguments_that_make_no_fault_are_refused(k: str, wanted: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        weakly_typed_topk(k=k, wanted=wanted)


@pytest.mark.parametrize("symbolic", [False, True])
def test_stale_output_is_declared_rank_0_and_is_rank_2(symbolic: bool) -> None:
    model = stale_rank0_output(symbolic=symbolic)
    y = outputs(model)["y"]
    assert y.type.tensor_type.HasField("shape")
    assert declared_shape(y) == []
    assert run(model)["y"].shape == (2 if symbolic else 1, 16)
    assert ("probabilities" in outputs(model)) is symbolic
    y.ClearField("type")  # Its declaration is the only fault.
    healed = infer_strictly(model)
    onnx.checker.check_model(healed, full_check=True)
    assert declared_shape(outputs(healed)["y"]) == ["batch" if symbolic else 1, 16]


def test_healthy_neighbour_is_symbolic() -> None:
    model = stale_rank0_output(symbolic=True)
    assert declared_shape(outputs(model)["probabilities"]) == ["batch", 10]
    assert run(model)["probabilities"].shape == (2, 10)


@pytest.mark.parametrize("shape", [(0, 1), (-1, 2), ("a", "b", "c"), (7, 5)])
def test_other_wrong_declarations(shape: tuple[int | str, ...]) -> None:
    model = stale_rank0_output(declared_shape=shape)
    assert declared_shape(outputs(model)["y"]) == list(shape)
    assert run(model)["y"].shape == (1, 16)


@pytest.mark.parametrize("opset", [17, 18])
def test_detection_runs_with_true_shapes_that_it_does_not_declare(opset: int) -> None:
    model = tf_detection(opset=opset)
    truth = {name: value.shape for name, value in run(model).items()}
    assert truth == {
        "detection_boxes": (2, 20, 4),
        "detection_scores": (2, 20),
        "detection_classes": (2, 20),
        "num_detections": (1,),
        "raw_scores": (2, 64, 16),
    }
    declared = outputs(model)
    assert declared_shape(declared["detection_boxes"]) == []
    assert declared_shape(declared["detection_scores"]) == [1, 1, 1]
    assert not declared["detection_classes"].type.tensor_type.HasField("shape")
    assert declared_shape(declared["num_detections"]) == []
    assert declared_shape(declared["raw_scores"]) == [None, 64, 16]
    assert declared_shape(model.graph.input[0]) == [None, 32, 32, 3]


def test_detection_has_stale_value_info() -> None:
    model = tf_detection()
    stale = {info.name: declared_shape(info) for info in model.graph.value_info}
    tensors = {output for node in model.graph.node for output in node.output}
    assert set(stale) - tensors == {"removed"}
    del model.graph.value_info[:]
    for info in model.graph.output:
        info.ClearField("type")
    healed = {info.name: declared_shape(info) for info in infer_strictly(model).graph.value_info}
    assert len(healed["box_head_conv"]) == 4
    assert len(stale["box_head_conv"]) == 2
    assert healed["block1_add"][1:] == [32, 16, 16]
    assert stale["block1_add"] == [1, 32, 7, 7]


def test_detection_with_wrong_types_is_refused_by_the_runtime_only_for_them() -> None:
    model = tf_detection(wrong_types=True)
    assert outputs(model)["detection_classes"].type.tensor_type.elem_type == TensorProto.INT64
    with pytest.raises(Exception, match="Type Error"):
        run(model)
    outputs(model)["detection_classes"].type.tensor_type.elem_type = TensorProto.FLOAT
    (cast,) = (info for info in model.graph.value_info if info.name == "classes_cast_in")
    cast.type.tensor_type.elem_type = TensorProto.INT64
    assert run(model)["detection_classes"].dtype == "float32"


def test_detection_with_k_above_the_anchors_is_refused_by_the_runtime() -> None:
    with pytest.raises(Exception, match="Axis has less than the requested k elements"):
        run(tf_detection(k="above_axis"))
