"""What holds of every healthy builder, and of the arguments that builders have in common."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import onnx
import pytest
from builder_models import declared_shape, run
from onnx import shape_inference

from onnxq_builders import BUILDERS, build

HEALTHY = [name for name in BUILDERS if not name.startswith("weak.")]

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("residual.convtranspose_conv", {"final_relu": False, "in_channels": 48, "channels": 16}),
    ("residual.identity", {"skip_op": "MaxPool"}),
    ("residual.identity", {"skip_op": "Identity", "op": "Sub"}),
    ("residual.preactivation", {"blocks": 3}),
    ("residual.bottleneck", {"projection": True}),
    ("residual.two_sources", {"conv_layers": 1, "transpose_layers": 2}),
    ("residual.graph_input_skip", {"skip_op": "Exp"}),
    ("residual.chained", {"shared_weights": True}),
    ("residual.squeeze_excite", {"gate": "inside", "gate_activation": "hardsigmoid"}),
    ("residual.broadcast_gate", {"op": "Mul"}),
    ("residual.sum", {"terms": 3}),
    ("residual.sum", {"op": "Sub"}),
    ("residual.equal_branches", {"kernels": [3, 1]}),
    ("residual.equal_branches", {"weights": "shared"}),
    ("residual.concat_branch", {"whole": False}),
    ("resnet.basic", {"stem": "conv", "blocks": [1, 2, 1], "activation": "leakyrelu"}),
    ("mobilenet.v3", {"hardswish": "hardswish_clip"}),
    ("convnext.basic", {"conv_mlp": True}),
    ("convnext.basic", {"gelu": "gelu_op", "opset": 20}),
    ("vit.basic", {"opset": 21, "blocks": 1}),
    ("unet.basic", {"add_skips": True, "depth": 3}),
    ("hrnet.basic", {"streams": 2, "blocks": 2}),
]


def takes(name: str, argument: str) -> bool:
    return argument in inspect.signature(BUILDERS[name]).parameters


@pytest.mark.parametrize(("name", "args"), [*((name, {}) for name in HEALTHY), *VARIANTS], ids=str)
def test_is_valid_and_runs(name: str, args: dict[str, Any]) -> None:
    model = build(name, **args)
    onnx.checker.check_model(model, full_check=True)
    shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    assert not model.graph.value_info
    for output, value in run(model).items():
        (info,) = (info for info in model.graph.output if info.name == output)
        assert declared_shape(info) == ["batch", *value.shape[1:]]
        assert np.isfinite(value).all()
        assert 0.05 < value.std() < 50
        assert np.abs(value).max() < 500


@pytest.mark.parametrize("name", HEALTHY)
def test_names_are_unique_and_readable(name: str) -> None:
    graph = build(name).graph
    nodes = [node.name for node in graph.node]
    tensors = [
        *(o for node in graph.node for o in node.output),
        *(i.name for i in graph.input),
        *(i.name for i in graph.initializer),
    ]
    assert all(nodes)
    assert len(set(nodes)) == len(nodes)
    assert len(set(tensors)) == len(tensors)
    outputs = {o.name for o in graph.output}
    for node in graph.node:
        if len(node.output) == 1:
            assert node.output[0] == node.name or node.output[0] in outputs


@pytest.mark.parametrize("name", BUILDERS)
def test_weights_come_from_the_seed(name: str) -> None:
    first, again, other = (build(name, seed=seed).SerializeToString(deterministic=True) for seed in (3, 3, 4))
    assert first == again
    assert first != other


@pytest.mark.parametrize("name", [name for name in HEALTHY if takes(name, "batch_norm")])
def test_folding_changes_no_result(name: str) -> None:
    plain, folded = build(name, batch_norm=True), build(name, batch_norm=False)
    assert "BatchNormalization" in {node.op_type for node in plain.graph.node}
    assert "BatchNormalization" not in {node.op_type for node in folded.graph.node}
    results = run(folded)
    for output, value in run(plain).items():
        np.testing.assert_allclose(results[output], value, rtol=1e-3, atol=1e-3 * np.abs(value).max())


@pytest.mark.parametrize("name", [name for name in HEALTHY if takes(name, "swap") and name != "unet.basic"])
def test_swap_exchanges_operands_and_nothing_else(name: str) -> None:
    plain, swapped = build(name), build(name, swap=True)
    merges = 0
    for one, other in zip(plain.graph.node, swapped.graph.node, strict=True):
        if list(one.input) != list(other.input):
            assert one.op_type in ("Add", "Sum")
            assert list(one.input) == list(other.input)[::-1]
            merges += 1
    assert merges
    results = run(swapped)
    for output, value in run(plain).items():
        np.testing.assert_allclose(results[output], value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in HEALTHY if takes(name, "prefix")])
def test_prefix_is_before_every_name(name: str) -> None:
    plain, renamed = build(name), build(name, prefix="p/")
    for one, other in zip(plain.graph.node, renamed.graph.node, strict=True):
        assert other.name == f"p/{one.name}"
        assert list(other.input) == [f"p/{tensor}" for tensor in one.input]
        assert list(other.output) == [f"p/{tensor}" for tensor in one.output]
    assert [o.name for o in renamed.graph.output] == [f"p/{o.name}" for o in plain.graph.output]
    onnx.checker.check_model(renamed, full_check=True)


@pytest.mark.parametrize("batch", [1, 3, "n"])
@pytest.mark.parametrize("name", ["residual.convtranspose_conv", "hrnet.basic", "vit.basic", "yolo.c2f"])
def test_batch_is_a_number_or_a_symbol(name: str, batch: int | str) -> None:
    graph = build(name, batch=batch).graph
    assert {declared_shape(info)[0] for info in (*graph.input, *graph.output)} == {batch}
