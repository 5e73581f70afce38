"""What is reduced: a model with the samples that it runs on, and what makes one smaller than another."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from onnxq.calibration import extract
from onnxq.errors import InvalidModelError
from onnxq.model_io import why_invalid
from onnxq.numerics import run_model
from onnxq.protos import NameSource, walk_graphs, walk_nodes, walk_tensors
from onnxq.shapes import infer_types
from onnxq.tensor_data import tensor_values
from onnxq.tensor_types import ValueType

Array = NDArray[Any]
Feed = Mapping[str, Array]

BFLOAT16 = helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)

_HIDDEN = frozenset(
    elem_type
    for name, elem_type in TensorProto.DataType.items()
    if name.startswith(("FLOAT8", "FLOAT4", "INT4", "UINT4", "INT2", "UINT2"))
)
"""Element types that the runtime has no arrays of: it fails to give them, or gives bytes."""

_SECONDS_OF_LOOPS = 30.0
"""That a run may take: a Loop whose condition was changed may never end."""

_STEPS = 8
"""Simple weights are multiples of one over this."""


@dataclass(frozen=True, order=True, slots=True)
class Size:
    """How big a model is. The first fields count most, so that the order is total.

    Attributes:
        nodes: How many there are, those of bodies included.
        elements: Of stored tensors and of one sample.
        values: Inputs and outputs of the model, and inputs of its nodes.
        attributes: Of nodes.
        weights: How far stored floats are from being simple: see `weight_complexity`.
        declarations: Types of inner tensors, symbolic dims, doc strings, metadata, operator sets.
        bytes: Of the whole model, without its weights.
    """

    nodes: int
    elements: int
    values: int
    attributes: int
    weights: int
    declarations: int
    bytes: int


@dataclass(frozen=True, eq=False)
class ReductionProblem:
    """A model, and the samples that it is run and calibrated on. Neither is ever changed.

    Attributes:
        model: Complete in memory.
        feeds: One mapping of input name to array for each run; at least one. All have the same shapes and dtypes.
    """

    model: ModelProto
    feeds: tuple[Feed, ...]

    @cached_property
    def size(self) -> Size:
        """How big it is."""
        model, stored = self.model, list(walk_tensors(self.model))
        nodes = list(walk_nodes(model.graph.node)) + [n for f in model.functions for n in walk_nodes(f.node)]
        graphs = list(walk_graphs(model.graph))
        texts: list[Any] = [model, *graphs, *nodes, *stored]
        return Size(
            nodes=len(nodes),
            elements=sum(math.prod(t.dims) for t in stored) + sum(value.size for value in self.feeds[0].values()),
            values=len(model.graph.input) + len(model.graph.output) + sum(sum(map(bool, n.input)) for n in nodes),
            attributes=sum(len(node.attribute) for node in nodes),
            weights=sum(map(weight_complexity, stored)),
            declarations=len(model.opset_import)
            + len(model.metadata_props)
            + sum(len(graph.value_info) for graph in graphs)
            + sum(symbolic_dims(value) for value in (*model.graph.input, *model.graph.output))
            + sum(bool(named.doc_string) for named in texts)
            + sum(len(node.metadata_props) for node in nodes),
            bytes=model.ByteSize() - sum(tensor.ByteSize() for tensor in stored),
        )

    @cached_property
    def digest(self) -> bytes:
        """Equal for equal problems."""
        digest = hashlib.sha256(self.model.SerializeToString(deterministic=True))
        for feed in self.feeds:
            for name, value in feed.items():
                digest.update(f"{name} {value.dtype} {value.shape}".encode())
                digest.update(np.ascontiguousarray(value).tobytes() if value.dtype != object else repr(value).encode())
        return digest.digest()

    @cached_property
    def types(self) -> Mapping[str, ValueType]:
        """Type of each tensor of the main graph, with the shape that it has on the first sample.

        Symbols that the model's inputs declare are kept where inference finds them. What isn't a tensor, is computed by
        no run, or has elements that no array of the runtime holds, such as int4, has no entry.
        """
        graph, inferred = self.model.graph, self._inferred
        found = {t.name: ValueType(t.data_type, tuple(t.dims)) for t in graph.initializer}
        made = [name for node in graph.node for name in node.output if name]
        dense = [name for name in made if _is_visible(inferred.get(name, ValueType(TensorProto.UNDEFINED)))]
        for name, value in {**self.feeds[0], **self.observe(dense, samples=1)[0]}.items():
            if isinstance(value, np.ndarray):
                found[name] = _observed_type(value, inferred.get(name))
        return found

    @cached_property
    def _inferred(self) -> Mapping[str, ValueType]:
        return infer_types(self.model)[0].tensors

    @cached_property
    def _has_loop(self) -> bool:
        functions = (node for function in self.model.functions for node in walk_nodes(function.node))
        return any(n.op_type == "Loop" for nodes in (walk_nodes(self.model.graph.node), functions) for n in nodes)

    def observe(self, names: Sequence[str], samples: int | None = None) -> list[dict[str, Any]]:
        """What tensors of the main graph hold.

        Args:
            names: Tensors that nodes yield.
            samples: On how many of the samples; None for all.

        Returns:
            Tensor -> value, for each sample.

        Raises:
            InvalidModelError: The runtime refuses the model.
        """
        feeds = self.feeds[:samples]
        if not names:
            return [{} for _ in feeds]
        part = extract(self.model, names)
        halves = [n for n in names if self._inferred.get(n, ValueType(0)).elem_type == TensorProto.BFLOAT16]
        shown = _show_as_float32(part, halves)
        return [
            {name: values[shown[name]].astype(BFLOAT16) if name in shown else values[name] for name in names}
            for values in run_model(part, feeds, time_limit=_SECONDS_OF_LOOPS if self._has_loop else None)
        ]

    def checker_says(self) -> str:
        """The first complaint of the ONNX checker; "" if there is none."""
        return why_invalid(self.model)

    def why_not_run(self) -> str:
        """What the runtime says against the model; "" if it runs."""
        try:
            self._outputs  # noqa: B018 (the run is what counts)
        except (InvalidModelError, ValueError) as error:  # ValueError: nothing makes an output
            return str(error)
        return ""

    def why_not_finite(self) -> str:
        """Names an output that is NaN or infinite; "" if there is none. Only for a model that runs."""
        for outputs in self._outputs:
            for name, value in outputs.items():
                if is_float(value) and not np.isfinite(value.astype(np.float32)).all():
                    return f'output "{name}" is not finite'
        return ""

    @cached_property
    def _outputs(self) -> list[dict[str, Any]]:
        return self.observe([value.name for value in self.model.graph.output])


def problem_of(model: ModelProto, feeds: Iterable[Feed]) -> ReductionProblem:
    """A problem with copies of its own.

    Raises:
        InvalidModelError: There are no samples, they differ in shape, or the model doesn't run on them.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    arrays = ({name: np.asarray(value) for name, value in feed.items()} for feed in feeds)
    problem = ReductionProblem(copy, tuple(arrays))
    if not problem.feeds:
        raise InvalidModelError("there is no sample to run the model on")
    kinds = [{name: (value.dtype, value.shape) for name, value in feed.items()} for feed in problem.feeds]
    if any(kind != kinds[0] for kind in kinds):
        raise InvalidModelError("the samples differ in shape: only samples of equal shapes can be reduced together")
    reason = problem.why_not_run()
    if reason:
        raise InvalidModelError(f"the float model itself can't be used, so it can't be reduced: {reason}")
    return problem


def is_float(value: Any) -> bool:
    """Whether a value is an array of floats."""
    return isinstance(value, np.ndarray) and (value.dtype.kind == "f" or value.dtype == BFLOAT16)


def is_storable(value: Any) -> bool:
    """Whether a value can be a sample: an array of numbers, which an .npz file can hold."""
    return isinstance(value, np.ndarray) and (value.dtype.kind in "biuf" or value.dtype == BFLOAT16)


def weight_complexity(tensor: TensorProto) -> int:
    """0: no floats, or all ones; 1: one number repeated; 2: eighths within -1 and 1; 3: anything else."""
    if tensor.data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE):
        return 0
    values = tensor_values(tensor).astype(np.float64)
    if not values.size or (values == values.flat[0]).all():
        return int(values.size and values.flat[0] != 1)
    with np.errstate(invalid="ignore"):
        is_simple = (np.abs(values) <= 1).all() and (values * _STEPS == np.rint(values * _STEPS)).all()
    return 2 if is_simple else 3


def simple_values(shape: tuple[int, ...], *, positive: bool) -> Array:
    """Seeded eighths within -1 and 1, without zeros; the same for the same shape."""
    rng = np.random.default_rng([len(shape), *shape])
    values = rng.integers(1, _STEPS + 1, shape) / _STEPS
    return values if positive else values * rng.choice([-1.0, 1.0], shape)


def symbolic_dims(value: ValueInfoProto) -> int:
    """How many dims of a declared tensor have a symbol."""
    return sum(dim.HasField("dim_param") for dim in value.type.tensor_type.shape.dim)


def _is_visible(kind: ValueType) -> bool:
    return kind.kind == "tensor" and kind.elem_type not in _HIDDEN


def _observed_type(value: Array, inferred: ValueType | None) -> ValueType:
    elem_type = helper.np_dtype_to_tensor_dtype(value.dtype)
    known = inferred.shape if inferred is not None and inferred.rank == value.ndim else None
    symbols = known or (None,) * value.ndim
    return ValueType(
        elem_type, tuple(s if isinstance(s, str) else n for s, n in zip(symbols, value.shape, strict=True))
    )


def _show_as_float32(model: ModelProto, names: Sequence[str]) -> dict[str, str]:
    """Let outputs of a model be float32, in place: the runtime has no arrays of bfloat16 to give.

    Returns:
        Tensor -> the output that shows it.
    """
    source, graph = NameSource(model), model.graph
    shown = {name: source.fresh(f"{name}/float32") for name in names}
    for value in graph.output:
        value.name = shown.get(value.name, value.name)
    graph.node.extend(helper.make_node("Cast", [name], [shown[name]], to=TensorProto.FLOAT) for name in names)
    return shown
