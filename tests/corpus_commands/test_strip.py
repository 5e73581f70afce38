from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnxq
from onnxq.corpus.strip import strip_weights
from onnxq.errors import InvalidModelError, UsageError
from onnxq.model_io import load_model
from onnxq.renaming import rename_all
from onnxq.seeded import KEY, Recipe, is_seeded, make_values, restore_weights
from onnxq_builders import BUILDERS, build


def values(model: ModelProto) -> Mapping[str, NDArray[Any]]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def restored(model: ModelProto, **options: Any) -> ModelProto:
    stripped = strip_weights(model, **options).model
    restore_weights(stripped)
    return stripped


def weights_model(**weights: NDArray[Any]) -> ModelProto:
    """Every weight is added to an input."""
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in weights]
    graph = helper.make_graph(nodes, "g", [], [], [numpy_helper.from_array(w, n) for n, w in weights.items()])
    return helper.make_model(graph)


@pytest.mark.parametrize("builder", ["residual.convtranspose_conv", "resnet.basic", "vit.basic", "weak.detection"])
def test_placement_survives_and_weights_dont(builder: str) -> None:
    model = build(builder)
    before = model.SerializeToString()
    copy = restored(model, above=64)
    assert model.SerializeToString() == before
    results = [onnxq.quantize(m) for m in (model, copy)]
    assert results[0].placement.to_text() == results[1].placement.to_text()
    old, new = values(model), values(copy)
    assert all(not np.array_equal(old[name], new[name]) for name in old if old[name].size > 64 and old[name].std() > 0)
    assert all(np.array_equal(old[name], new[name]) for name in old if old[name].size <= 64)


@pytest.mark.parametrize("builder", sorted(BUILDERS))
def test_channels_keep_their_magnitudes(builder: str) -> None:
    model = build(builder)
    old, new = values(model), values(restored(model, above=64))
    for name, weight in old.items():
        assert (new[name].shape, new[name].dtype) == (weight.shape, weight.dtype)
        assert np.abs(new[name]).max(initial=0) == pytest.approx(np.abs(weight).max(initial=0), rel=0.01)
        assert new[name].mean() == pytest.approx(
            weight.mean(), abs=float(0.5 * weight.std() + 0.01 * abs(weight.mean()))
        )


def test_statistics_are_those_of_the_output_channels() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 8, 4, 4] x) => (float[1, 64, 8, 8] y) { y = ConvTranspose<strides = [2, 2]>(x, w) }
    """)
    scales = np.geomspace(1e-4, 1e2, 64)
    weight = np.random.default_rng(0).standard_normal((8, 64, 2, 2)) * scales[:, None, None]
    weight[:, 5] = 0
    model.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), "w"))
    new = values(restored(model))["w"]
    peaks, wanted = (np.abs(w).max(axis=(0, 2, 3)) for w in (new, weight))
    assert np.allclose(peaks, wanted, rtol=0.01)
    assert not new[:, 5].any()
    assert np.allclose(new.std(axis=(0, 2, 3)), weight.std(axis=(0, 2, 3)), rtol=0.5)


def test_equal_weights_stay_equal_and_others_dont() -> None:
    one, two = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
    new = values(restored(weights_model(a=one, b=two, c=one)))
    assert np.array_equal(new["a"], new["c"])
    assert abs(np.corrcoef(new["a"].ravel(), new["b"].ravel())[0, 1]) < 0.1
    assert abs(np.corrcoef(new["a"].ravel(), one.ravel())[0, 1]) < 0.1


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int16, np.bool_])
def test_what_may_steer_shapes_is_kept(dtype: type) -> None:
    model = weights_model(shape=np.arange(5000).astype(dtype))
    stripped = strip_weights(model)
    assert (stripped.stripped, stripped.kept) == (0, 5000)
    assert np.array_equal(values(stripped.model)["shape"], values(model)["shape"])


@pytest.mark.parametrize("data_type", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE, TensorProto.INT8])
def test_element_types_survive(data_type: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(data_type)
    weight = np.linspace(-100, 100, 4096).astype(dtype)
    stripped = strip_weights(weights_model(w=weight))
    assert stripped.tensors == 1
    assert len(stripped.model.SerializeToString()) < 500
    restore_weights(stripped.model)
    new = values(stripped.model)["w"].astype(np.float64)
    assert stripped.model.graph.initializer[0].data_type == data_type
    assert (new.min(), new.max()) == (-100, 100)


def test_positive_numbers_stay_positive() -> None:
    variance = np.random.default_rng(0).exponential(1e-3, 4096).astype(np.float32) + 1e-9
    assert (values(restored(weights_model(v=variance)))["v"] > 0).all()


def test_constants_and_bodies_are_stripped_and_texts_dropped(tmp_path) -> None:
    secret = numpy_helper.from_array(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32), "inner")
    body = helper.make_graph([helper.make_node("Identity", ["inner"], ["z"])], "body", [], [], [secret])
    body.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [64, 64]))
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 64])]
    nodes = [
        helper.make_node("Constant", [], ["c"], value_floats=[0.25 * n for n in range(2000)]),
        helper.make_node("If", ["cond"], ["y"], then_branch=body, else_branch=body, doc_string="/home/me/secret.py"),
    ]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("cond", TensorProto.BOOL, [])], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, doc_string="secret")
    helper.set_model_props(model, {"trained_on": "secret"})
    stripped = strip_weights(model)
    assert stripped.tensors == 3
    raw = stripped.model.SerializeToString()
    assert b"secret" not in raw
    assert len(raw) < 5000
    onnx.save(stripped.model, tmp_path / "m.onnx")
    loaded = load_model(tmp_path / "m.onnx")
    assert numpy_helper.to_array(loaded.graph.node[0].attribute[0].t).max() == 500
    onnx.checker.check_model(loaded)
    assert not strip_weights(stripped.model).stripped, "what is stripped already stays as it is"


def test_the_same_recipe_makes_the_same_values_for_ever() -> None:
    made = make_values(Recipe(7, 0, [0.5, 0.0], [0.1, 1.0], [0.2, -2.0], [0.8, 2.0]), (2, 3, 1000))
    digest = hashlib.sha256(made.astype("<f4").tobytes()).hexdigest()
    assert digest[:16] == "e072d94d0d3e76f3"


def test_not_finite_values_are_told() -> None:
    weight = np.ones(2000, np.float32)
    weight[3] = np.nan
    stripped = strip_weights(weights_model(w=weight))
    assert stripped.not_finite == ("w",)
    restore_weights(stripped.model)
    assert np.isfinite(values(stripped.model)["w"]).all()


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("{", "can't be read"),
        ('{"seed": -1, "axis": null, "mean": [0], "std": [1], "low": [0], "high": [1]}', "can't be read"),
        ('{"seed": 1, "axis": 3, "mean": [0], "std": [1], "low": [0], "high": [1]}', "doesn't fit shape"),
        ('{"seed": 1, "axis": 0, "mean": [0], "std": [1], "low": [0], "high": [1]}', "another number of channels"),
        ('{"seed": 1, "axis": null, "mean": [0], "std": [1], "low": [2], "high": [1]}', "above the greatest"),
    ],
)
def test_a_wrong_recipe_is_an_error_that_names_the_tensor(tmp_path, recipe: str, message: str) -> None:
    stripped = strip_weights(weights_model(w=np.ones((40, 50), np.float32))).model
    stripped.graph.initializer[0].metadata_props[0].value = recipe
    onnx.save(stripped, tmp_path / "m.onnx")
    with pytest.raises(InvalidModelError, match=message) as caught:
        load_model(tmp_path / "m.onnx")
    assert str(caught.value).startswith(f'{tmp_path / "m.onnx"}: tensor "w"')


def test_recipes_cannot_ask_for_too_much() -> None:
    stripped = strip_weights(weights_model(w=np.ones((40, 50), np.float32))).model
    tensor = stripped.graph.initializer[0]
    assert is_seeded(tensor)
    assert tensor.metadata_props[0].key == KEY
    tensor.dims[:] = [2**20, 2**20]
    with pytest.raises(InvalidModelError, match="at most"):
        restore_weights(stripped)


def test_short_tensors_are_never_stripped() -> None:
    with pytest.raises(UsageError, match="above=4: at least 16"):
        strip_weights(weights_model(), above=4)


@pytest.mark.parametrize("builder", sorted(BUILDERS))
def test_renaming_changes_names_only(builder: str) -> None:
    model = build(builder)
    renamed = ModelProto()
    renamed.CopyFrom(model)
    names = rename_all(renamed)
    assert len(set(names.values())) == len(names)
    old, new = (onnxq.quantize(m, high_precision_dtype="fp32") for m in (model, renamed))
    assert list(old.placement.quantized) == list(new.placement.quantized)
    text = renamed.SerializeToString()
    kept = {n.op_type for n in model.graph.node}
    assert not [name for name in names if len(name) > 4 and name.encode() in text and name not in kept]


def test_renaming_keeps_what_is_equal_or_missing() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[batch, 4] secret) => (float[batch, 4] result) {
            [same] a = Relu(secret)
            [same] b = Clip(a, , hi)
            result = Relu(b)
        }
    """)
    rename_all(model)
    nodes = model.graph.node
    assert [n.name for n in nodes] == ["n0", "n0", ""]
    assert list(nodes[1].input)[1] == ""
    assert [v.name for v in (*model.graph.input, *model.graph.output)] == ["x0", "y1"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "d0"
