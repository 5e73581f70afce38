"""Sizes of stored values, and which models are large."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxq.tensor_data import byte_size, is_large, is_mappable, leave_in_file, self_contained, tensor_values

TYPES = [number for name, number in TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING")]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0, 4)])
def test_the_size_is_that_of_the_raw_values(dtype, shape):
    dense = numpy_helper.from_array(np.zeros(shape, helper.tensor_dtype_to_np_dtype(dtype)), "w")
    assert dense.data_type == dtype
    assert byte_size(dense) == len(dense.raw_data)
    typed = helper.make_tensor("w", dtype, shape, [0] * math.prod(shape))
    assert byte_size(typed) == len(dense.raw_data)


def test_what_holds_no_values_has_no_size():
    assert byte_size(TensorProto(data_type=TensorProto.FLOAT, dims=[1000])) == 0
    assert byte_size(helper.make_tensor("s", TensorProto.STRING, [1], [b"text"])) == 0
    assert byte_size(TensorProto(data_type=999, dims=[-3], raw_data=b"x")) == 0


@pytest.mark.parametrize("dtype", [t for t in TYPES if is_mappable(TensorProto(data_type=t))])
def test_values_in_a_file_are_those_in_memory(tmp_path, dtype):
    values = np.arange(24).reshape(2, 3, 4).astype(helper.tensor_dtype_to_np_dtype(dtype))
    tensor = numpy_helper.from_array(values, "w")
    (tmp_path / "w.bin").write_bytes(b"before" + tensor.raw_data + b"after")
    model = ModelProto()
    model.graph.initializer.append(tensor)
    mapped = ModelProto()
    mapped.CopyFrom(model)
    leave_in_file(mapped.graph.initializer[0], tmp_path / "w.bin", 6)
    assert not mapped.graph.initializer[0].raw_data
    found = tensor_values(mapped.graph.initializer[0])
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)
    assert self_contained(mapped) == model
    assert self_contained(model) is model


def test_attributes_and_bodies_count(monkeypatch):
    model = ModelProto()
    for name in ("a", "b"):
        body = helper.make_graph([], "body", [], [], [numpy_helper.from_array(np.zeros(10, np.float32), name)])
        model.graph.node.append(helper.make_node("If", ["c"], ["y"], then_branch=body))
    model.graph.node.append(
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.zeros(10, np.int8)))
    )
    for limit, large in ((90, True), (91, False)):
        monkeypatch.setattr("onnxq.tensor_data.LARGE_MODEL", limit)
        assert is_large(model) == large
