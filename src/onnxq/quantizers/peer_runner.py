"""Run by path in the Python that has a peer installed: quantizes models there, each with files in one folder.

Uses nothing but the standard library and what the peer needs anyway, so onnxq needn't be installed there.

    python peer_runner.py describe TARGET OUTPUT.json
    python peer_runner.py quantize TARGET MODEL CALIBRATION.npz OPTIONS.json OUTPUT
    python peer_runner.py serve TARGET DESCRIPTOR

TARGET is "onnxruntime", "modelopt", or "package.module:function"; for `describe` it may also be the names of
distributions, separated by commas, of which the first that is installed counts. DESCRIPTOR is that of a socket.
"""

from __future__ import annotations

import sys
from pathlib import Path

if sys.path and Path(sys.path[0] or ".").resolve() == Path(__file__).resolve().parent:
    del sys.path[0]  # Python put this folder first, and modules in it must not hide installed ones

import json
import os
import socket
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module, metadata
from typing import Any, NoReturn


class Samples:
    """The calibration samples of one exchange; also what onnxruntime calls a CalibrationDataReader.

    Args:
        file: Arrays by input name.
        runs: How many samples they hold.
        scalars: Inputs of rank 0, which take one element a run.
    """

    def __init__(self, file: str, runs: int, scalars: list[str]) -> None:
        import numpy as np

        with np.load(file) as arrays:
            self.arrays = {name: arrays[name] for name in arrays.files}
        split = {name: np.split(array, runs) for name, array in self.arrays.items()}
        self.feeds: list[dict[str, Any]] = [
            {name: parts[run].reshape(()) if name in scalars else parts[run] for name, parts in split.items()}
            for run in range(runs)
        ]
        self._rest: Iterator[dict[str, Any]] = iter(self.feeds)

    def get_next(self) -> dict[str, Any] | None:
        """The next sample; None when there are no more."""
        return next(self._rest, None)


def with_onnxruntime(model: str, samples: Samples, options: Mapping[str, Any], output: str) -> None:
    """`quantize_static`: Q/DQ, int8 activations and weights, symmetric, per channel."""
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType
    from onnxruntime.quantization import quantize_static as quantize

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, Any] | None:
            return samples.get_next()

    arguments = dict(options)
    excluded = set(arguments.pop("op_types_to_exclude", ()))
    if excluded:
        arguments["op_types_to_quantize"] = [op for op in _onnxruntime_op_types(arguments) if op not in excluded]
    method = CalibrationMethod[arguments.pop("calibrate_method", "MinMax")]
    quantize(
        model,
        output,
        Reader(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
        calibrate_method=method,
        extra_options={"ActivationSymmetric": True, "WeightSymmetric": True},
        **arguments,
    )


def with_modelopt(model: str, samples: Samples, options: Mapping[str, Any], output: str) -> None:
    """ModelOpt's Python API, on the CPU."""
    quantization = import_module("modelopt.onnx.quantization")
    quantization.quantize(
        onnx_path=model,
        calibration_data=samples.arrays,
        calibration_eps=["cpu"],
        output_path=output,
        **options,
    )


def with_function(target: str, model: str, samples: Samples, options: Mapping[str, Any], output: str) -> None:
    """Any function of a model, its samples, and options."""
    import onnx

    onnx.save_model(load(target)(onnx.load_model(model), samples.feeds, dict(options)), output)


PEERS: Mapping[str, Callable[[str, Samples, Mapping[str, Any], str], None]] = {
    "onnxruntime": with_onnxruntime,
    "modelopt": with_modelopt,
}

PRELOADED: Mapping[str, tuple[str, ...]] = {
    "onnxruntime": ("numpy", "onnx"),
    "modelopt": ("numpy", "modelopt.onnx.quantization"),
}
"""What a server imports before it forks; of onnxruntime little, since newer versions start threads when imported."""


def load(target: str) -> Any:
    """What "package.module:function" names."""
    module, _, names = target.partition(":")
    found = import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found


def quantize(target: str, model: str, calibration: str, options: str, output: str) -> None:
    """Quantize one model."""
    given = json.loads(Path(options).read_text(encoding="utf-8"))
    samples = Samples(calibration, given["runs"], given["scalars"])
    if target in PEERS:
        PEERS[target](model, samples, given["options"], output)
    else:
        with_function(target, model, samples, given["options"], output)


def serve(target: str, descriptor: str) -> None:
    """Import a peer, and quantize one model after the other, each in a fork, which knows of no model before it.

    A request is a message of JSON, and comes with the descriptor that the fork prints to. There are two answers, a line
    each: the number of the fork's process and group, and its exit status. The end of the requests is the end of the
    server.
    """
    for module in PRELOADED.get(target, ()):
        import_module(module)
    channel = socket.socket(fileno=int(descriptor))
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 2**16, 1)
        if not message:
            return
        sys.stdout.flush()
        fork = os.fork()
        if fork == 0:
            os.setpgid(0, 0)
            channel.close()
            os.dup2(descriptors[0], 1)
            os.dup2(descriptors[0], 2)
            os.close(descriptors[0])
            end_with(partial(quantize_there, target, **json.loads(message)))
        os.setpgid(fork, fork)  # whoever of the two is first
        os.close(descriptors[0])
        channel.sendall(f"{fork}\n".encode())
        channel.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])}\n".encode())


def end_with(work: Callable[[], None]) -> NoReturn:
    """Do the last thing in a fork. Threads of the server aren't there, so nothing must wait for them at the end."""
    status = 0
    try:
        work()
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def quantize_there(target: str, folder: str, environment: dict[str, str], arguments: list[str]) -> None:
    """Quantize one model with a working folder and environment variables of its own."""
    os.chdir(folder)
    os.environ.update(environment)
    tempfile.tempdir = None  # what was found at an import doesn't count
    quantize(target, *arguments)


def describe(target: str, output: str) -> None:
    """Write down what there is: {} for nothing, else version, and name and policy where a function declares them."""
    found: dict[str, Any] = {}
    if ":" in target:
        function = load(target)
        found = {key: getattr(function, key, None) for key in ("name", "version", "policy")}
    else:
        for distribution in target.split(","):
            try:
                found = {"version": metadata.version(distribution)}
                break
            except metadata.PackageNotFoundError:
                pass
    Path(output).write_text(json.dumps(found), encoding="utf-8")


def _onnxruntime_op_types(arguments: Mapping[str, Any]) -> list[str]:
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    return arguments.get("op_types_to_quantize") or sorted({*QDQRegistry, *QLinearOpsRegistry})


if __name__ == "__main__":
    COMMANDS: Mapping[str, Callable[..., None]] = {"describe": describe, "quantize": quantize, "serve": serve}
    COMMANDS[sys.argv[1]](*sys.argv[2:])
