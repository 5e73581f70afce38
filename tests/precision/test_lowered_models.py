"""What holds of every model in half precision, whatever is in it (rules F1, F5, F6 and F8)."""

from __future__ import annotations

from functools import cache

import numpy as np
import precision_checks as checks
import pytest
from onnx import ModelProto, TensorProto
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator
from precision_models import MODELS

from onnxq.convert import HALF_TYPES, convert_to_f16
from onnxq.errors import UnsupportedError
from onnxq.protos import walk_graphs
from onnxq.shapes import prepare
from onnxq.tensor_types import value_type

BOUNDS = {"fp16": 0.01, "bf16": 0.05}
"""Greatest error of an output, in parts of its greatest magnitude. Half precision has 11 binary digits, bfloat16 8."""

NOT_CONVERTIBLE = ("function", "bf16")
"""ONNX's version converter leaves the opset that a local function imports as it is."""

NO_REFERENCE = {"nms", "loop", "loop_passes_state", "optional", "contrib", "qdq_old_opset", "dynamic_quantize"}
"""What onnx's reference evaluator can't run in float32 either."""

CASES = [
    pytest.param(name, half, keep, id=f"{name}-{half}{'' if keep else '-io'}")
    for name in MODELS
    for half in HALF_TYPES
    for keep in (True, False)
    if (name, half) != NOT_CONVERTIBLE
]


@cache
def raw_model(name: str) -> ModelProto:
    model = parse_model(MODELS[name])
    for value in (*model.graph.input, *model.graph.output):
        value.doc_string = f"what {value.name} is"
    return model


@cache
def float_model(name: str) -> ModelProto:
    return prepare(raw_model(name)).model


@cache
def converted_model(name: str, half: str, keep: bool) -> ModelProto:
    model = raw_model(name)
    before = model.SerializeToString(deterministic=True)
    converted = convert_to_f16(model, low_precision_type=half, keep_io_types=keep)
    assert model.SerializeToString(deterministic=True) == before
    return converted


@cache
def expected(name: str) -> dict[str, np.ndarray]:
    model = float_model(name)
    outputs = checks.run(model, checks.feeds(model, symbol=4))
    assert all(np.isfinite(v).all() for v in outputs.values() if v.dtype.kind == "f"), "a case must be finite itself"
    return outputs


def assert_close(name: str, outputs: dict[str, np.ndarray], bound: float) -> None:
    for output, exact in expected(name).items():
        got = np.asarray(outputs[output])
        assert got.shape == exact.shape, output
        if exact.dtype.kind != "f" and exact.dtype != np.float16:
            np.testing.assert_array_equal(got, exact)
        elif exact.size:
            got, exact = got.astype(np.float64), exact.astype(np.float64)
            assert np.isfinite(got).all(), output
            assert np.abs(got - exact).max() <= bound * max(np.abs(exact).max(), 1e-3), output


@pytest.mark.parametrize(("name", "half", "keep"), CASES)
def test_valid_minimal_and_stable(name: str, half: str, keep: bool) -> None:
    converted = converted_model(name, half, keep)
    checks.check_valid(converted)
    checks.check_casts(converted)
    assert checks.is_typed_as_declared(converted)
    again = convert_to_f16(converted, low_precision_type=half, keep_io_types=keep)
    assert again.SerializeToString(deterministic=True) == converted.SerializeToString(deterministic=True)


@pytest.mark.parametrize(("name", "half", "keep"), CASES)
def test_interface(name: str, half: str, keep: bool) -> None:
    model = ModelProto()
    model.CopyFrom(float_model(name))
    if not keep:
        for value in (*model.graph.input, *model.graph.output):
            if value_type(value.type).elem_type == TensorProto.FLOAT:
                value.type.tensor_type.elem_type = HALF_TYPES[half]
    checks.check_interface(model, converted_model(name, half, keep))


@pytest.mark.parametrize("optimize", [False, True], ids=["plain", "optimized"])
@pytest.mark.parametrize("keep", [True, False], ids=["", "io"])
@pytest.mark.parametrize("name", MODELS)
def test_the_runtime_agrees(name: str, keep: bool, optimize: bool) -> None:
    converted = converted_model(name, "fp16", keep)
    feed = checks.feeds(float_model(name), symbol=4)
    assert_close(name, checks.run(converted, feed, optimize=optimize), BOUNDS["fp16"])


@pytest.mark.parametrize("half", HALF_TYPES)
@pytest.mark.parametrize("name", [name for name in MODELS if name not in NO_REFERENCE])
@pytest.mark.filterwarnings("ignore")  # numpy warns of overflow, and that is what the assertion is about
def test_arithmetic_that_is_half_throughout_agrees(name: str, half: str) -> None:
    """The runtime computes many operators in float32, whatever their type is; ONNX's reference doesn't."""
    if (name, half) == NOT_CONVERTIBLE:
        pytest.skip("the opset that a local function imports can't be raised")
    converted = converted_model(name, half, True)
    outputs = ReferenceEvaluator(converted).run(None, checks.feeds(float_model(name), symbol=4))
    assert_close(name, dict(zip([v.name for v in converted.graph.output], outputs, strict=True)), BOUNDS[half])


@pytest.mark.parametrize("name", MODELS)
def test_with_every_node_excluded_no_bit_changes(name: str) -> None:
    converted = convert_to_f16(parse_model(MODELS[name]), nodes_to_exclude=[".*"])
    checks.check_valid(converted)
    outputs = checks.run(converted, checks.feeds(float_model(name), symbol=4))
    for output, exact in expected(name).items():
        np.testing.assert_array_equal(outputs[output], exact)


@pytest.mark.parametrize("half", HALF_TYPES)
def test_with_every_node_excluded_nothing_is_added(half: str) -> None:
    model = float_model("matmul_gemm")
    converted = convert_to_f16(model, low_precision_type=half, nodes_to_exclude=[".*"])
    assert [n.op_type for n in converted.graph.node] == [n.op_type for n in model.graph.node]
    assert list(converted.graph.initializer) == list(model.graph.initializer)


@pytest.mark.parametrize("name", MODELS)
def test_every_new_node_has_a_name_of_its_own(name: str) -> None:
    converted = converted_model(name, "fp16", True)
    names = [node.name for graph in walk_graphs(converted.graph) for node in graph.node]
    assert all(names)
    assert len(names) == len(set(names))


def test_a_function_whose_opset_cannot_be_raised_is_refused_by_reason() -> None:
    with pytest.raises(UnsupportedError, match="can't be converted to 22"):
        convert_to_f16(parse_model(MODELS["function"]), low_precision_type="bf16")
