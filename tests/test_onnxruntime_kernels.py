"""What policy onnxruntime is for: onnxruntime runs the result with integer kernels, and no float one is left."""

from __future__ import annotations

from collections import Counter
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto

from onnxq.errors import UnsupportedError
from onnxq.invariants import check
from onnxq.numerics import output_sqnr, run_model
from onnxq.pipeline import quantize
from onnxq_builders import BUILDERS
from onnxruntime_graphs import float_linear, optimized_ops
from text_models import text_model

RNG_SEED = 7
TRANSFORMER = """
    n = LayerNormalization(x, b1)
    q = MatMul(n, w1) qb = Add(q, b2)
    k = MatMul(n, w2) kb = Add(b3, k) kt = Transpose<perm=[0,2,1]>(kb)
    v = MatMul(n, w3) vb = Add(v, b4)
    a = MatMul(qb, kt) s = Mul(a, c1) p = Softmax(s) o = MatMul(p, vb)
    h = MatMul(o, w4) hb = Add(h, b5) r = Add(hb, x)
    m = MatMul(r, w5) mb = Add(m, b6) g = Relu(mb) f = MatMul(g, w6) fb = Add(f, b7) y = Add(fb, r)
"""
SQUARE = {f"w{n}": (16, 16) for n in range(1, 7)}


def samples(model: ModelProto, count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(RNG_SEED)
    stored = {t.name for t in model.graph.initializer}
    shapes = {
        v.name: [d.dim_value or 2 for d in v.type.tensor_type.shape.dim]
        for v in model.graph.input
        if v.name not in stored
    }
    return [{name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()} for _ in range(count)]


def result(model: ModelProto, **options: Any) -> tuple[Counter[str], float]:
    """Ops of the optimized graph, and the SQNR of its outputs on new samples, as the definition has it."""
    feeds = samples(model, 9)
    found = quantize(model, policy="onnxruntime", calibration_data=feeds[:8], **options).model
    assert not check(model, found, policy="onnxruntime")
    reference, got = run_model(model, feeds[8:]), run_model(found, feeds[8:])
    return optimized_ops(found), min(output_sqnr(reference, got).values())


@pytest.mark.parametrize(
    ("model", "kernels"),
    [
        pytest.param(
            text_model("c = Conv(x, w1, b1) r = Relu(c) d = Conv(r, w2, b2) y = Neg(d)"),
            {"QLinearConv": 2, "Relu": 0},
            id="conv-relu-conv",
        ),
        pytest.param(
            text_model(
                "c = Conv(x, w1, b1) r = Relu(c) d = Conv(r, w2) e = Relu(d) f = Conv(e, w3) s = Add(f, r) t = Relu(s) "
                "g = Conv(t, w4) y = Neg(g)"
            ),
            {"QLinearConv": 4, "QLinearAdd": 1, "Relu": 0},
            id="residual",
        ),
        pytest.param(
            text_model(
                "c = Conv<group=16>(x, d1) r = Clip(c, low, high) d = Conv(r, k1, b1) s = Clip(d, low, high) "
                "e = Conv(s, k2) y = Neg(e)",
                d1=(16, 1, 1, 1),
                low=(),
                high=(),
            ),
            {"QLinearConv": 3, "Clip": 0},
            id="mobilenet",
        ),
        pytest.param(
            text_model(
                "c = Conv(x, w1) g = GlobalAveragePool(c) d = Conv(g, k1, b1) r = Relu(d) e = Conv(r, k2, b2) "
                "s = Sigmoid(e) m = Mul(c, s) f = Conv(m, w2) y = Neg(f)"
            ),
            {"QLinearConv": 4, "QLinearGlobalAveragePool": 1, "QLinearSigmoid": 1, "QLinearMul": 1, "Relu": 0},
            id="squeeze-excite",
        ),
        pytest.param(
            text_model(
                "c = Conv(x, w1) r = Relu(c) p = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(r) "
                "d = Conv(x, w2) s = Relu(d) q = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(s) "
                "t = Concat<axis=1>(p, q) e = Conv(t, w3) y = Neg(e)",
                w3=(16, 32, 3, 3),
            ),
            {"QLinearConv": 3, "QLinearConcat": 1, "QLinearAveragePool": 1, "Relu": 0},
            id="concat-pooling",
        ),
        pytest.param(
            text_model(
                "c = Conv(x, w1) r = Relu(c) p = GlobalAveragePool(r) f = Flatten(p) g = Gemm(f, u1, b1) h = Relu(g) "
                "y = Gemm<transB=1>(h, u2, b2)",
                outputs="float[1,16] y",
                u1=(16, 16),
                u2=(16, 16),
            ),
            {"QLinearConv": 1, "QLinearGlobalAveragePool": 1, "QGemm": 2, "Relu": 0, "DequantizeLinear": 0},
            id="head",
        ),
        pytest.param(
            text_model(TRANSFORMER, "float[2,4,16] x", "float[2,4,16] y", **SQUARE),
            {"Softmax": 1, "QLinearMatMul": 1, "LayerNormalization": 1},
            id="transformer",
        ),
        pytest.param(
            text_model(TRANSFORMER, "float[N,T,16] x", "float[N,T,16] y", **SQUARE),
            {"Softmax": 1},
            id="dynamic-transformer",
        ),
        pytest.param(
            text_model(
                "m = MatMul(x, w1) b = Add(m, b1) r = Relu(b) n = MatMul(r, w2) s = Add(n, z) t = Exp(s) "
                "y = MatMul(t, w3)",
                "float[4,16] x, float[4,16] z",
                "float[4,16] y",
                **SQUARE,
            ),
            {"Relu": 0},
            id="perceptron",
        ),
        pytest.param(
            text_model("m = MatMul(x, w1) y = Relu(m)", "float[4,16] x", "float[4,16] y", **SQUARE),
            {},
            id="matmul-relu",
        ),
        pytest.param(
            text_model("g = Gemm(x, w1, b1) r = Relu(g) y = Neg(r)", "float[4,16] x", "float[4,16] y", **SQUARE),
            {"QGemm": 1},
            id="gemm-relu-float",
        ),
        pytest.param(
            text_model("m = MatMul(w1, x) n = MatMul(m, w2) y = Neg(n)", "float[16,16] x", "float[16,16] y", **SQUARE),
            {},
            id="constant-first",
        ),
        pytest.param(
            text_model("y = MatMul(x, w1)", "float[2,4,16] x", "float[2,4,16] y", w1=(2, 16, 16)),
            {},
            id="batched-weight",
        ),
    ],
)
def test_no_linear_op_is_left_in_float(model, kernels) -> None:
    for tensor in model.graph.initializer:
        if tensor.name in ("low", "high"):
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.float32({"low": 0, "high": 6}[tensor.name]), tensor.name))
    ops, noise = result(model)
    assert float_linear(ops) == 0, ops
    assert {op: ops[op] for op in kernels} == kernels, ops
    assert noise > 25


ENDS_IN_A_CONVOLUTION = ("hrnet.basic", "unet.basic")
"""Its result is an output of the graph, so it stays float."""

ARCHITECTURES = [name for name in BUILDERS if name.split(".")[0] not in ("residual", "weak")]


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("is_folded", [False, True], ids=["batchnorm", "folded"])
def test_every_convolution_of_an_architecture_is_an_integer_kernel(name, is_folded) -> None:
    model = _folded(BUILDERS[name]()) if is_folded else BUILDERS[name]()
    convolutions = sum(node.op_type == "Conv" for node in model.graph.node)
    ops, noise = result(model)
    assert ops["QLinearConv"] == convolutions - (name in ENDS_IN_A_CONVOLUTION), ops
    assert sum(ops[op] for op in ("FusedGemm", "FusedMatMul", "Gemm", "MatMul")) == 0, ops
    assert noise > 12


def test_folded_networks_run_in_integers_from_end_to_end() -> None:
    for name in ("resnet.basic", "mobilenet.v2"):
        ops, _ = result(_folded(BUILDERS[name]()))
        assert (ops["QuantizeLinear"], ops["DequantizeLinear"]) == (1, 0), ops


def test_int8_activations_run_in_integers_too() -> None:
    model = text_model("c = Conv(x, w1, b1) r = Relu(c) d = Conv(r, w2, b2) y = Neg(d)")
    ops, noise = result(model, activation_type="int8")
    assert (ops["QLinearConv"], ops["Relu"]) == (2, 0)
    assert noise > 25


def test_a_body_runs_in_integers() -> None:
    body = "c = Conv(x, w1, b1) r = Relu(c) d = Conv(r, w2) p = Neg(d)"
    model = text_model(
        f"z1 = Identity(w1) z2 = Identity(w2) z3 = Identity(b1) "
        f"y = If(on) <then_branch = t () => (float[1,16,8,8] p) {{ {body} }}, "
        "else_branch = e () => (float[1,16,8,8] q) { q = Abs(x) }>",
        inputs="float[1,16,8,8] x, bool on",
    )
    feeds = [{**samples(text_model("y = Neg(x)"), 1)[0], "on": np.array(True)}]
    found = quantize(model, policy="onnxruntime", calibration_data=feeds).model
    assert not check(model, found, policy="onnxruntime")
    (ratio,) = output_sqnr(run_model(model, feeds), run_model(found, feeds, optimize=True)).values()
    assert ratio > 20


def test_half_precision_is_refused() -> None:
    for dtype in ("fp16", "bf16"):
        with pytest.raises(UnsupportedError, match="use 'fp32', the default of this policy"):
            quantize(text_model("y = Conv(x, w1)"), policy="onnxruntime", high_precision_dtype=dtype)
    model = text_model("c = Conv(x, w1) y = Neg(c)")
    types = {t.data_type for t in quantize(model, policy="onnxruntime").model.graph.initializer}
    assert onnx.TensorProto.FLOAT16 not in types
    assert onnx.TensorProto.FLOAT16 in {t.data_type for t in quantize(model).model.graph.initializer}


def _folded(model: ModelProto) -> ModelProto:
    """The model after onnxruntime's basic optimizations, which fold batch normalization into convolutions."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with TemporaryDirectory() as folder:
        options.optimized_model_filepath = f"{folder}/folded.onnx"
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)
