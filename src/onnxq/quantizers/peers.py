"""Known quantizers of others, each run in a process of its own: a crash there is a failed case here.

Every run starts fresh, or from a fork that has done nothing but import the peer, and with the same hash seed. So a peer
that remembers earlier models, or depends on the order of sets, gives the same result each time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from onnxq.errors import PeerError, UnsupportedError, UsageError
from onnxq.policies import Policy
from onnxq.quantizers.quantizer import Settings

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxq.calibration import CalibrationData
    from onnxq.quantizers.exchange import Files
    from onnxq.quantizers.fork_server import ForkServer
    from onnxq.quantizers.process import Ended

RUNNER = Path(__file__).with_name("peer_runner.py")
"""The program that runs in the Python that has the peer."""

Translate = Callable[["ModelProto", Mapping[str, Any]], dict[str, Any]]
"""Model and options of `onnxq.quantize` -> keyword arguments of the peer; UnsupportedError for what it can't do."""


@dataclass(frozen=True)
class Peer:
    """What onnxq knows about a tool before it is looked for.

    Attributes:
        distributions: Names under which it is installed; the first is the one to recommend.
        install: What to tell pip.
        policy: Whose fusion rules it follows.
        translate: How it is told the options.
    """

    distributions: tuple[str, ...]
    install: str
    policy: Policy
    translate: Translate


@dataclass(frozen=True)
class PeerQuantizer:
    """A quantizer that the runner calls in some Python.

    Attributes:
        name: Its name.
        version: The version that is installed there.
        policy: Whose fusion rules it follows.
        target: What the runner calls it.
        python: The interpreter.
        time_limit: Seconds that one model may take.
        translate: How it is told the options.
        hash_seed: PYTHONHASHSEED there; None for that of this process, or 0 if it has none.
        server: Forks a process for each model; None to start each anew.
    """

    name: str
    version: str
    policy: Policy
    target: str
    python: str
    time_limit: float
    translate: Translate
    hash_seed: int | None = None
    server: ForkServer | None = field(default=None, repr=False, compare=False)
    _seeded: dict[int, PeerQuantizer] = field(default_factory=dict, init=False, repr=False, compare=False)

    def with_hash_seed(self, seed: int) -> PeerQuantizer:
        """The same where sets have another order: with this PYTHONHASHSEED. The same object for the same seed."""
        if seed not in self._seeded:
            server = None if self.server is None else self.server.with_environment({"PYTHONHASHSEED": str(seed)})
            self._seeded[seed] = replace(self, hash_seed=seed, server=server)
        return self._seeded[seed]

    def quantize(
        self, model: ModelProto, calibration_data: CalibrationData | None, options: Mapping[str, Any]
    ) -> ModelProto:
        """Quantize a copy of a model.

        Raises:
            PeerError: It crashed, took too long, or left no usable model.
            UnsupportedError: It can't be told one of the options, or can't be given one of the samples.
            CalibrationError: The calibration data don't fit the model.
        """
        from onnxq.quantizers.exchange import peer_feeds, quantize_in_process

        arguments = self.translate(model, options)
        feeds = peer_feeds(model, calibration_data, options)
        return quantize_in_process(f"{self.name} {self.version}", self._run, model, feeds, arguments)

    def _run(self, files: Files) -> Ended:
        from onnxq.quantizers.exchange import private_environment
        from onnxq.quantizers.process import run_program

        paths = [str(path) for path in (files.model, files.calibration, files.options, files.output)]
        if self.server is not None:
            return self.server.run(paths, folder=files.folder, time_limit=self.time_limit)
        seed = {} if self.hash_seed is None else {"PYTHONHASHSEED": str(self.hash_seed)}
        return run_program(
            [self.python, str(RUNNER), "quantize", self.target, *paths],
            time_limit=self.time_limit,
            environment=private_environment(files.folder, {**python_environment(self.python), **seed}),
            folder=files.folder,
        )


def find_peer(name: str, settings: Settings, policy: Policy | None = None) -> PeerQuantizer:
    """Find one of `PEERS` in its own Python, if the settings name one, else in this one.

    Raises:
        UsageError: It isn't there; the message says what to do.
    """
    peer = PEERS[name]
    other = settings.peer_pythons.get(name)
    python = sys.executable if other is None else usable_python(name, other)
    found = _installed(peer) if other is None else describe(name, python, ",".join(peer.distributions), settings)
    if "version" not in found:
        raise UsageError(
            f'quantizer "{name}": {peer.distributions[0]} isn\'t installed in {python}; install it there '
            f'(pip install "{peer.install}"), or name a Python that has it: --onnxq-peer-python {name}=PATH'
        )
    own = policy or peer.policy
    return PeerQuantizer(
        name,
        found["version"],
        own,
        name,
        python,
        settings.time_limit,
        peer.translate,
        server=_server(name, python),
    )


def _server(target: str, python: str) -> ForkServer | None:
    """What forks processes of a peer, where the system can fork."""
    from onnxq.quantizers.fork_server import ForkServer

    arguments = [python, str(RUNNER), "serve", target]
    return ForkServer(arguments, python_environment(python)) if hasattr(os, "fork") else None


def usable_python(name: str, python: str) -> str:
    """The path of an interpreter, links kept as they are: a virtual environment is known by the path of its link.

    Raises:
        UsageError: There is no such program.
    """
    found = shutil.which(os.path.expanduser(python))  # noqa: PTH111 (a name without a folder must stay one)
    if found is None:
        raise UsageError(f'quantizer "{name}": "{python}" is no Python interpreter: no program of that path or name')
    return os.path.abspath(found)  # noqa: PTH100 (resolve() would follow links)


def describe(name: str, python: str, target: str, settings: Settings) -> dict[str, Any]:
    """Ask another Python what it has.

    Args:
        name: Of the quantizer, for messages.
        python: The interpreter.
        target: What the runner is to look for.
        settings: With the time limit.

    Returns:
        "version", "name" and "policy", as far as there are; {} if a distribution isn't installed.

    Raises:
        UsageError: The interpreter doesn't run, or the target can't be loaded there.
    """
    from onnxq.quantizers.process import run_program

    with tempfile.TemporaryDirectory(prefix="onnxq-") as folder:
        answer = Path(folder) / "answer.json"
        try:
            ended = run_program(
                [python, str(RUNNER), "describe", target, str(answer)],
                time_limit=settings.time_limit,
                environment=python_environment(python),
            )
            if ended.is_success and answer.exists():
                found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
                return found
            problem = f"{ended.how}: {ended.output.rpartition(chr(10))[2] or 'no output'}"
        except (PeerError, ValueError) as error:
            problem = str(error)
    raise UsageError(f'quantizer "{name}": asked {python} for {target}, and it {problem}')


def python_environment(python: str) -> dict[str, str]:
    """Environment variables for an interpreter: another one must not import the packages of this one."""
    ours = () if python == sys.executable else ("PYTHONPATH", "PYTHONHOME")
    return {name: value for name, value in os.environ.items() if name not in ours}


def _installed(peer: Peer) -> dict[str, str]:
    for distribution in peer.distributions:
        try:
            return {"version": version(distribution)}
        except PackageNotFoundError:
            pass
    return {}


def onnxruntime_arguments(model: ModelProto, options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of onnxruntime's `quantize_static`, which takes names of nodes where onnxq takes patterns.

    It always quantizes what its kernels yield, outputs included, and always stores weights as integers.
    """
    _check(
        "onnxruntime",
        options,
        {
            "quantize_mode": ("int8",),
            "high_precision_dtype": ("fp32",),
            "calibration_method": tuple(_ORT_METHODS),
            "policy": ("onnxruntime",),
            "quantize_outputs": (True,),
            "dq_only": (True,),
        },
    )
    arguments: dict[str, Any] = {"calibrate_method": _ORT_METHODS[options.get("calibration_method", "max")]}
    patterns, op_types = options.get("nodes_to_quantize"), options.get("op_types_to_quantize")
    if patterns is not None:
        names = _names(model, patterns, op_types or ())
        if not names:  # onnxruntime takes an empty list for all nodes
            raise UnsupportedError(f"onnxruntime: no named node matches nodes_to_quantize={list(patterns)!r}")
        arguments["nodes_to_quantize"] = names
    elif op_types is not None:
        arguments["op_types_to_quantize"] = list(op_types)
    arguments["nodes_to_exclude"] = _names(model, options.get("nodes_to_exclude") or (), ())
    arguments["op_types_to_exclude"] = list(options.get("op_types_to_exclude") or ())
    return {name: value for name, value in arguments.items() if value != []}


def modelopt_arguments(model: ModelProto, options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of ModelOpt's `quantize`, whose patterns match the start of a name where ours match all of it."""
    _check(
        "modelopt",
        options,
        {
            "quantize_mode": None,
            "high_precision_dtype": None,
            "calibration_method": None,
            "policy": ("tensorrt",),
            "activation_type": ("int8",),
            "dq_only": None,
            "direct_io_types": None,
        },
    )
    arguments: dict[str, Any] = {"calibration_method": "max", "high_precision_dtype": "fp32"}
    arguments |= {name: value for name, value in options.items() if name not in (*_ABOUT_INPUT, *_ABOUT_TARGET)}
    for name in ("nodes_to_quantize", "nodes_to_exclude"):
        if name in arguments:
            arguments[name] = [rf"(?:{pattern})\Z" for pattern in options[name]]
    return arguments


_ORT_METHODS = MappingProxyType({"max": "MinMax", "entropy": "Entropy"})
_SELECTION = ("op_types_to_quantize", "op_types_to_exclude", "nodes_to_quantize", "nodes_to_exclude")
_ABOUT_TARGET = ("policy", "activation_type")
"""Options that can only be asked for if they are what the peer does anyway."""
_ABOUT_INPUT = ("calibration_shapes", "seed", "on_quantized")
"""Options that the harness has dealt with, or that change nothing for a float model."""


def _check(peer: str, options: Mapping[str, Any], values: Mapping[str, tuple[object, ...] | None]) -> None:
    for name, value in options.items():
        if name not in (*_SELECTION, *_ABOUT_INPUT, *values):
            raise UnsupportedError(f"{peer}: it has nothing like the option {name}={value!r}")
        possible = values.get(name)
        if possible is not None and value not in possible:
            offered = " or ".join(map(str, possible))
            raise UnsupportedError(f"{peer}: {name}={value!r} can't be asked of it, only {offered}")


def _names(model: ModelProto, patterns: Sequence[str], op_types: Sequence[str]) -> list[str]:
    """Names of the nodes that a pattern matches as a whole, or that are of one of the types."""
    try:
        compiled = [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise UsageError(f"{error.pattern!r} is no regular expression: {error}") from None
    return [
        node.name
        for node in model.graph.node
        if node.name and (node.op_type in op_types or any(pattern.fullmatch(node.name) for pattern in compiled))
    ]


PEERS: Mapping[str, Peer] = MappingProxyType(
    {
        "onnxruntime": Peer(
            ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml"),
            "onnxruntime",
            "onnxruntime",
            onnxruntime_arguments,
        ),
        "modelopt": Peer(("nvidia-modelopt",), "nvidia-modelopt[onnx]", "tensorrt", modelopt_arguments),
    }
)
"""Tools that there is an adapter for, by name."""
