"""Running (parts of) the float model in onnxruntime, with its errors turned into one line for a person."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
from google.protobuf.message import EncodeError
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from onnxq.errors import CalibrationError, UnsupportedError
from onnxq.model_io import PROTO_LIMIT

_MESSAGE_LIMIT = 400


def serialize(model: ModelProto) -> bytes:
    """The bytes of a model that is complete in memory.

    Raises:
        UnsupportedError: It is too large for one protobuf message.
    """
    try:
        raw = model.SerializeToString()
    except (EncodeError, ValueError):  # what protobuf raises beyond its limit
        raw = None
    if raw is None or len(raw) > PROTO_LIMIT:
        raise UnsupportedError(
            "the part of the model to run for calibration is 2 GiB or more, which onnxq can't run yet: "
            "exclude nodes with large weights"
        )
    return bytes(raw)


def open_session(model: bytes, *, optimize: bool = False) -> ort.InferenceSession:
    """Load a model on the CPU.

    Args:
        model: From `serialize`: as bytes, so that nobody holds the message while the runtime builds its own copy.
        optimize: Whether the runtime may rewrite the graph: faster runs, slower loading, values that differ slightly.

    Returns:
        The session.

    Raises:
        CalibrationError: The runtime refuses the model.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 4  # what goes wrong arrives as an exception; nothing else is for the user
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exception types have no public base
        raise CalibrationError(
            f"onnxruntime can't load the float model: {_one_line(error)}; "
            "repair the model, or exclude the nodes behind the one named"
        ) from None


def run(session: ort.InferenceSession, feed: Mapping[str, Any], where: str) -> list[Any]:
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
    missing = [i.name for i in session.get_inputs() if i.name not in feed]
    if missing:
        raise CalibrationError(f'{where} has no value for input "{missing[0]}"')
    values = {i.name: _runtime_value(feed[i.name], i.type) for i in session.get_inputs()}
    try:
        return list(session.run(None, values))
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
