"""Strategies for models of any operators, and the function that makes a model of a topology.

For what must hold of every model: there are no labels. Every topology has a model, which passes the checker and runs
with finite numbers, so nothing is filtered and nothing solved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from onnx import TensorProto

from onnxq.calibration import make_feeds
from onnxq.strategies import control_steps, linear_steps, pointwise_steps, shape_steps
from onnxq.strategies.drawing import Drawing, Tensor
from onnxq.strategies.labelled import LabelledModel
from onnxq.strategies.model_topology import (
    DTYPES,
    MODEL_CONSTANTS,
    MODEL_NAMES,
    OLDEST_MODEL_OPSET,
    SHAPES,
    ModelTopology,
    Step,
)
from onnxq.strategies.topology import NEWEST_OPSET

Write = Callable[[Drawing, Tensor, Tensor, int], Tensor]


@dataclass(frozen=True, slots=True)
class StepKind:
    """How a step is written, and how many nodes it makes at most, those of its bodies and Constants included."""

    write: Write
    nodes: int


STEPS: Mapping[str, StepKind] = MappingProxyType(
    {
        "activation": StepKind(pointwise_steps.activation, 3),
        "arithmetic": StepKind(pointwise_steps.arithmetic, 4),
        "conv": StepKind(linear_steps.conv, 8),
        "transpose": StepKind(shape_steps.transpose, 1),
        "concat": StepKind(shape_steps.concat, 3),
        "sum": StepKind(pointwise_steps.sums, 2),
        "precision": StepKind(pointwise_steps.precision, 2),
        "pool": StepKind(pointwise_steps.pool, 6),
        "matmul": StepKind(linear_steps.matmul, 9),
        "gemm": StepKind(linear_steps.gemm, 9),
        "reshape": StepKind(shape_steps.reshape, 6),
        "split": StepKind(shape_steps.split, 3),
        "slice": StepKind(shape_steps.cut, 6),
        "pad": StepKind(shape_steps.pad, 2),
        "resize": StepKind(shape_steps.resize, 7),
        "conv_transpose": StepKind(linear_steps.conv_transpose, 7),
        "written_out": StepKind(pointwise_steps.written_out, 9),
        "norm": StepKind(pointwise_steps.norm, 14),
        "mask": StepKind(pointwise_steps.mask, 4),
        "squeeze_excite": StepKind(pointwise_steps.squeeze_excite, 8),
        "indices": StepKind(control_steps.indices, 12),
        "if": StepKind(control_steps.choice, 16),
        "loop": StepKind(control_steps.loop, 13),
        "attention": StepKind(linear_steps.attention, 19),
    }
)
"""All kinds of steps, the simplest first."""

_ELEM_TYPES = MappingProxyType(dict.fromkeys(DTYPES, TensorProto.FLOAT) | {"float16": TensorProto.FLOAT16})


def build_model(topology: ModelTopology) -> LabelledModel:
    """The model of a topology. Every topology has one, and always the same.

    It passes the checker and strict shape inference, onnxruntime runs it, and its outputs are finite on inputs of
    ordinary size.
    """
    constants = "cast" if topology.dtype == "bfloat16" else topology.constants
    elem_type = _ELEM_TYPES[topology.dtype]
    d = Drawing(topology.opset, elem_type, np.random.default_rng(topology.seed), constants, topology.names)
    symbol = "batch" if topology.symbolic else ""
    values = [d.input(SHAPES[shape], symbol=symbol if SHAPES[shape][0] == 1 else "") for shape in topology.inputs]
    d.side = d.input((2,), TensorProto.INT64) if topology.side else None
    for step in topology.steps:
        kind = STEPS[step.kind]
        if d.size + kind.nodes <= topology.max_nodes:
            x, y = (values[-1 - min(back, len(values) - 1)] for back in (step.source, step.other))
            values.append(kind.write(d, x, y, step.form))
    if not d.nodes:
        values.append(d.apply("Identity", [values[-1]], values[-1].shape))
    return LabelledModel(_finished(d, topology), (), topology)


def _finished(d: Drawing, topology: ModelTopology) -> onnx.ModelProto:
    """The model: every tensor that nothing reads is an output, and some of the others."""
    ends = [tensor for tensor in d.made if tensor.name not in d.read]
    inner = [tensor for tensor in d.made if tensor.name in d.read and tensor.elem_type == d.elem_type]
    outputs = [*ends, *inner[: topology.outputs]]
    opset = topology.opset
    return onnx.ModelProto(
        ir_version=8 if opset < 19 else 10 if opset < 24 else 11,
        producer_name="onnxq",
        opset_import=[onnx.OperatorSetIdProto(version=opset)],
        graph=d.graph(outputs, "model", is_open=topology.symbolic),
    )


def model_topologies(
    *,
    ops: Sequence[str] = tuple(STEPS),
    max_nodes: int = 20,
    dtypes: Sequence[str] = ("float32",),
    opset: int | None = None,
) -> st.SearchStrategy[ModelTopology]:
    """Topologies for `build_model`; the same arguments as `models`."""
    for name, given, known in (("ops", ops, STEPS), ("dtypes", dtypes, DTYPES)):
        if isinstance(given, str) or not given or not set(given) <= set(known):
            raise InvalidArgument(f"{name} must be a non-empty sequence out of {', '.join(known)}, not {given!r}")
    if max_nodes < 1:
        raise InvalidArgument(f"max_nodes must be at least 1, not {max_nodes!r}")
    if opset is not None and not OLDEST_MODEL_OPSET <= opset <= NEWEST_OPSET:
        raise InvalidArgument(f"opset must be within {OLDEST_MODEL_OPSET} and {NEWEST_OPSET}, not {opset!r}")
    kinds = [kind for kind in STEPS if kind in ops]
    step = st.builds(Step, st.sampled_from(kinds), st.integers(0, 5), st.integers(0, 5), st.integers(0, 127))
    return st.builds(
        ModelTopology,
        st.lists(step, max_size=max(max_nodes // 2, 1)).map(tuple),
        st.lists(st.integers(0, len(SHAPES) - 1), min_size=1, max_size=3).map(tuple),
        st.booleans(),
        st.booleans(),
        st.sampled_from([dtype for dtype in DTYPES if dtype in dtypes]),
        st.just(opset) if opset is not None else st.integers(OLDEST_MODEL_OPSET, NEWEST_OPSET),
        st.sampled_from(MODEL_NAMES),
        st.sampled_from(MODEL_CONSTANTS),
        st.integers(0, 2),
        st.integers(0, 255),
        st.just(max_nodes),
    )


def models(
    *,
    ops: Sequence[str] = tuple(STEPS),
    max_nodes: int = 20,
    dtypes: Sequence[str] = ("float32",),
    opset: int | None = None,
) -> st.SearchStrategy[LabelledModel]:
    """Models of any operators: `build_model` over `model_topologies`.

    In them: convolutions of one to three dims with all attributes, products of matrices in all forms, attention, norms,
    pools, activations as operators and written out, what moves data, masks, Casts, what goes through integers, bodies
    that capture, shared weights, Constant nodes, several inputs and outputs, symbolic dims, scalars and empty tensors,
    unnamed nodes, and names that a quantizer would give itself.

    Args:
        ops: Kinds of steps allowed, out of `STEPS`.
        max_nodes: Most nodes of a model, those of bodies included.
        dtypes: Element types of data and weights, out of `DTYPES`.
        opset: Version of the default operator set; None for any from 11 on.

    Raises:
        InvalidArgument: An argument is out of range, empty, or unknown.
    """
    return model_topologies(ops=ops, max_nodes=max_nodes, dtypes=dtypes, opset=opset).map(build_model)


def calibration_feeds(model: onnx.ModelProto, *, max_samples: int = 3) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Calibration samples for any model: what `onnxq.quantize` makes up without data, of drawn seeds.

    Args:
        model: The model; open dims are 1.
        max_samples: Most samples.
    """
    seeds = st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=max_samples, unique=True)
    return seeds.map(lambda drawn: [dict(feed) for seed in drawn for feed in make_feeds(model, None, seed=seed)])
