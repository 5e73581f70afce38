"""Preparation of real exports: those inside onnx's own wheel, and those inside packages that may be installed."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from onnxq.protos import walk_graphs
from onnxq.shapes import Prepared, prepare
from onnxq.tensor_types import GraphTypes, ValueType, value_type

PACKAGES = ("rapidocr_onnxruntime", "silero_vad", "magika")


def real_models() -> Iterator[object]:
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    files = sorted(light.glob("*.onnx"))
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            yield pytest.param(None, id=package, marks=pytest.mark.skip(reason=f"{package} isn't installed"))
        else:
            files += sorted(Path(spec.submodule_search_locations[0]).rglob("*.onnx"))
    for file in files:
        yield pytest.param(file, id=file.stem)


@pytest.fixture(scope="module", params=real_models())
def case(request) -> tuple[ModelProto, Prepared]:
    model = onnx.load(request.param)
    return model, prepare(model)


def test_every_value_is_typed_and_nothing_is_contradictory(case):
    _, prepared = case
    check(prepared.types, prepared.model.graph)


def check(types: GraphTypes, graph: onnx.GraphProto) -> None:
    for node in graph.node:
        for name in node.output:
            assert not name or types.tensors[name].kind != "tensor" or types.tensors[name].elem_type, name
    for value in (*graph.output, *graph.value_info):
        if value.name in types.tensors and value.type.WhichOneof("value"):
            assert agree(value_type(value.type), types.tensors[value.name]), value.name
    for (position, attribute), body in types.bodies.items():
        check(body, next(a.g for a in graph.node[position].attribute if a.name == attribute))


def agree(declared: ValueType, known: ValueType) -> bool:
    if declared.shape is None or known.shape is None:
        return declared.elem_type == known.elem_type
    numbers = [
        (a, b) for a, b in zip(declared.shape, known.shape, strict=True) if isinstance(a, int) and isinstance(b, int)
    ]
    return declared.elem_type == known.elem_type and all(a == b for a, b in numbers)


def test_only_names_of_nodes_change(case):
    model, prepared = case
    assert {change.rule for change in prepared.changes} <= {"S8"}
    stripped = [ModelProto(), ModelProto()]
    for copy, source in zip(stripped, (model, prepared.model), strict=True):
        copy.CopyFrom(source)
        for graph in walk_graphs(copy.graph):
            for node in graph.node:
                node.name = ""
    assert stripped[0] == stripped[1]


def test_preparing_twice_changes_nothing(case):
    _, first = case
    second = prepare(first.model)
    assert second.model == first.model
    assert second.changes == ()
    assert second.types == first.types
