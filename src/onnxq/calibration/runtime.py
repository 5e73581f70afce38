"""Running (parts of) the float model in onnxruntime, with its errors turned into one line for a person."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort
from google.protobuf.message import EncodeError
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper

from onnxq.errors import CalibrationError, UnsupportedError
from onnxq.protos import with_initializers
from onnxq.tensor_data import is_heavy, is_large, is_mappable, is_mapped, tensor_values

_MESSAGE_LIMIT = 400

Weights = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Program:
    """A model in the form that the runtime takes.

    Attributes:
        raw: The model as bytes, so that nobody holds the message while the runtime builds its own copy.
        weights: Values of inputs that were initializers. So the runtime uses the memory of a large model's weights, or
            the file that they lie in, where it would make copies of initializers.
    """

    raw: bytes
    weights: Weights


@dataclass(frozen=True)
class Session:
    """A model that the runtime has loaded.

    Attributes:
        runtime: The runtime's session.
        weights: See `Program`.
    """

    runtime: ort.InferenceSession
    weights: Weights


def serialize(model: ModelProto) -> Program:
    """Bring a model into the form that the runtime takes. The heavy weights of a large model become inputs.

    Raises:
        UnsupportedError: It is too large for one protobuf message even so.
    """
    weights: dict[str, NDArray[Any]] = {}
    if is_large(model) or any(map(is_mapped, model.graph.initializer)):
        weights = {t.name: tensor_values(t) for t in model.graph.initializer if is_heavy(t) and is_mappable(t)}
        model = _with_inputs(model, weights)
    try:
        return Program(bytes(model.SerializeToString()), weights)
    except (EncodeError, ValueError):  # what protobuf raises beyond its limit
        raise UnsupportedError(
            "the part of the model to run has 2 GiB or more beside the initializers of its main graph: "
            "store the weights as such, or exclude the nodes that hold them"
        ) from None


def _with_inputs(model: ModelProto, names: Weights) -> ModelProto:
    """A copy of a model that has inputs in place of some initializers."""
    moved = [t for t in model.graph.initializer if t.name in names]
    light = with_initializers(model, (t for t in model.graph.initializer if t.name not in names))
    listed = {value.name for value in light.graph.input}  # IR version 3 lists initializers there too
    light.graph.input.extend(
        helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in moved if t.name not in listed
    )
    return light


def open_session(program: Program, *, optimize: bool = False, threads: int = 0, arena: bool = True) -> Session:
    """Load a model on the CPU.

    Args:
        program: From `serialize`.
        optimize: Whether the runtime may rewrite the graph: faster runs, slower loading, values that differ slightly.
        threads: How many it uses; 0 for all cores.
        arena: Whether it keeps the memory of one run for the next.

    Returns:
        The session.

    Raises:
        CalibrationError: The runtime refuses the model.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 4  # what goes wrong arrives as an exception; nothing else is for the user
    options.intra_op_num_threads = threads
    options.add_session_config_entry(
        "session.intra_op.allow_spinning", "0"
    )  # waiting threads leave the cores to others
    options.enable_cpu_mem_arena = options.enable_mem_pattern = arena
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    try:
        session = ort.InferenceSession(program.raw, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exception types have no public base
        raise CalibrationError(
            f"onnxruntime can't load the float model: {_one_line(error)}; "
            "repair the model, or exclude the nodes behind the one named"
        ) from None
    return Session(session, program.weights)


def run(session: Session, feed: Mapping[str, Any], where: str) -> list[Any]:
    """Compute all outputs of a session.

    Args:
        session: The session.
        feed: A value for each of its inputs; others are ignored.
        where: Which sample this is, for messages.

    Returns:
        One value an output.

    Raises:
        CalibrationError: An input has no value, or the runtime fails.
    """
    inputs, given = session.runtime.get_inputs(), {**feed, **session.weights}
    missing = [i.name for i in inputs if i.name not in given]
    if missing:
        raise CalibrationError(f'{where} has no value for input "{missing[0]}"')
    values = {i.name: _runtime_value(given[i.name], i.type) for i in inputs}
    try:
        return list(session.runtime.run(None, values))
    except Exception as error:  # see open_session
        raise CalibrationError(
            f"the float model itself doesn't run on {where}: onnxruntime says: {_one_line(error)}; "
            "check the data (or calibration_shapes, where there are none), or repair the model"
        ) from None


def _runtime_value(value: Any, type_name: str) -> Any:
    """The runtime takes bfloat16 only as a value of its own kind, made of the bits."""
    if type_name != "tensor(bfloat16)" or not isinstance(value, np.ndarray):
        return value
    bits: NDArray[np.uint16] = value.view(np.uint16)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)


def _one_line(error: Exception) -> str:
    noise = r"\[ONNXRuntimeError\] : \d+ : \w+ : |/onnxruntime_src/\S+ "
    text = re.sub(noise, "", " ".join(str(error).split()))
    return text if len(text) <= _MESSAGE_LIMIT else f"{text[:_MESSAGE_LIMIT]}..."
