"""Running a model in onnxruntime, and how far the results of two models are apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Timer
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper

from onnxq.calibration.runtime import serialize
from onnxq.errors import InvalidModelError
from onnxq.rewrite import integer_interface
from onnxq.storing import quantized

Outputs = dict[str, Any]
"""Output name -> value of one run."""

_MESSAGE_LIMIT = 500


def run_model(
    model: ModelProto,
    feeds: Iterable[Mapping[str, Any]],
    *,
    optimize: bool = False,
    exact_integers: bool = False,
    time_limit: float | None = None,
) -> list[Outputs]:
    """Run a model on the CPU, on one thread, so that the same model gives the same numbers.

    Args:
        model: Complete in memory.
        feeds: Input name -> array, one mapping a run.
        optimize: Whether the runtime may rewrite the graph. Without it every Q and DQ computes what its definition
            says; with it the runtime fuses them into integer kernels.
        exact_integers: Whether integer kernels must be exact where the faster ones saturate: for uint8 and int8 on x86
            processors without VNNI. Nor may the runtime quantize biases: it does so in the type of the scales, and in
            half precision the quotients overflow (onnxruntime 1.32).
        time_limit: Seconds that each run may take, for models that may loop for ever.

    Returns:
        The outputs of each run.

    Raises:
        InvalidModelError: The runtime refuses to load or to run the model.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 4  # what goes wrong arrives as an exception
    options.intra_op_num_threads = 1
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    if exact_integers:
        options.add_session_config_entry("session.x64quantprecision", "1")
    disabled = ["WeightBiasQuantization"] if exact_integers else []
    how = f"with optimizations {'on' if optimize else 'off'}"
    program = serialize(model)
    try:
        session = ort.InferenceSession(
            program.raw, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
        )
    except Exception as error:  # the runtime's exception types have no public base
        raise InvalidModelError(f"onnxruntime can't load the model {how}: {_one_line(error)}") from None
    names = [output.name for output in session.get_outputs()]
    results = []
    for number, feed in enumerate(feeds):
        given = {**feed, **program.weights}
        try:
            values = {i.name: _as_ort_value(given[i.name], i.type) for i in session.get_inputs() if i.name in given}
            with _ended_after(time_limit) as how_long:
                results.append(dict(zip(names, session.run(None, values, how_long), strict=True)))
        except Exception as error:
            raise InvalidModelError(
                f"onnxruntime can't run the model on feed {number} {how}: {_one_line(error)}"
            ) from None
    return results


@contextmanager
def _ended_after(seconds: float | None) -> Iterator[ort.RunOptions]:
    """Options for a run, which fails when the time is up: the runtime looks at them before each node."""
    options = ort.RunOptions()
    timer = None if seconds is None else Timer(seconds, setattr, (options, "terminate", True))
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield options
    finally:
        if timer is not None:
            timer.cancel()


def direct_feeds(model: ModelProto, feeds: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Feeds of a float model as a model takes them whose inputs are half precision or integers (`direct_io_types`).

    Args:
        model: The quantized model.
        feeds: Input name -> array, one mapping a run.
    """
    integers = integer_interface(model)
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    dtypes = {name: helper.tensor_dtype_to_np_dtype(elem_type) for name, elem_type in types.items()}

    def direct(name: str, value: NDArray[Any]) -> NDArray[Any]:
        found = integers.get(name)
        if found is None or value.dtype == found.zero_point.dtype:
            return value.astype(dtypes[name])
        return quantized(value, found.scale, found.zero_point, None)

    return [{name: direct(name, value) for name, value in feed.items()} for feed in feeds]


def real_outputs(model: ModelProto, results: Iterable[Outputs]) -> list[Outputs]:
    """What outputs mean that are integers because of `direct_io_types`; others as they are.

    Args:
        model: The quantized model.
        results: What it yielded.
    """
    integers = integer_interface(model)

    def real(name: str, value: Any) -> Any:
        found = integers.get(name)
        if found is None:
            return value
        return (value.astype(np.float32) - found.zero_point.astype(np.float32)) * found.scale.astype(np.float32)

    return [{name: real(name, value) for name, value in outputs.items()} for outputs in results]


def sqnr(reference: NDArray[Any], value: NDArray[Any]) -> float:
    """Signal to quantization noise ratio in dB: 10 log10(sum(reference²) / sum((reference - value)²)).

    Args:
        reference: What the float model computes. Of a float type.
        value: What the quantized model computes, of the same shape.

    Returns:
        inf if both are equal; -inf if only `reference` is zero everywhere, if the shapes differ, or if one is NaN or
        infinite where the other isn't. Elements that are equally so in both don't count.
    """
    if reference.shape != value.shape:
        return -np.inf
    signal, result = reference.astype(np.float64), value.astype(np.float64)
    finite = np.isfinite(signal)
    if not np.array_equal(signal[~finite], result[~finite], equal_nan=True) or not np.isfinite(result[finite]).all():
        return -np.inf
    power = float(np.square(signal[finite]).sum())
    noise = float(np.square(signal[finite] - result[finite]).sum())
    if noise == 0:
        return np.inf
    return 10 * float(np.log10(power / noise)) if power else -np.inf


def output_sqnr(reference: list[Outputs], results: list[Outputs]) -> dict[str, float]:
    """The SQNR of each float output over all runs, in dB.

    Args:
        reference: Outputs of the float model.
        results: Outputs of the quantized model on the same feeds.

    Returns:
        Output name -> SQNR, the least over the runs. Outputs of integers, bools and strings have none.
    """
    worst: dict[str, float] = {}
    for before, after in zip(reference, results, strict=True):
        for name, value in before.items():
            if isinstance(value, np.ndarray) and _is_float(value):
                ratio = sqnr(value, np.asarray(after[name])) if name in after else -np.inf
                worst[name] = min(ratio, worst.get(name, np.inf))
    return worst


def _is_float(value: NDArray[Any]) -> bool:
    return value.dtype.kind == "f" or value.dtype.name == "bfloat16"


def _as_ort_value(value: Any, type_name: str) -> Any:
    """The runtime takes bfloat16 only as a value of its own kind, made of the bits."""
    if type_name != "tensor(bfloat16)" or not isinstance(value, np.ndarray):
        return value
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(value.view(np.uint16), TensorProto.BFLOAT16)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= _MESSAGE_LIMIT else f"{text[:_MESSAGE_LIMIT]}..."
