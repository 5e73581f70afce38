"""Exports one architecture of timm, and writes down what its own code adds to what. Run by zoo.py in another Python.

    python zoo_export.py FOLDER resnet18 trace dynamo

Needs torch, torchvision, timm, onnx and onnxscript, and nothing of onnxq. Into FOLDER go

    resnet18.onnx           for "trace", torch's tracing exporter
    resnet18.dynamo.onnx    for "dynamo", its newer one
    resnet18.npz            "calibration" and "test" samples, and the two operands of each Add whose skip is known
    resnet18.json           versions, the input's shape, where each Add stands, and what went wrong

Weights are random. So that int8 has something to lose, normalizations and layer scales get values as training leaves
them, and the statistics of BatchNormalization are those of the activations.

What is the skip is read off the running PyTorch model, not off a graph: a module that adds two tensors of one shape
carries one of them past its branch. That one is what the module was given, or what it last added to that, or what a
child yields to which the authors gave a name for it (downsample, shortcut, skip). An Add of which neither operand or
both are so has no known skip.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

SIZES = (64, 96, 128, 224, 256)
"""Heights and widths of the input to try, the least first; then what the architecture was made for."""

BATCH = 2
CALIBRATION_RUNS = 4
SHORTCUTS = frozenset({"downsample", "shortcut", "skip"})
"""What timm calls a child that adapts the skip to the shape of the branch."""

ADDS = frozenset({torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__})


@dataclass
class Frame:
    """A module that is running: what it carries along, and the name by which its parent has it."""

    path: str
    module: nn.Module
    carried: list[Tensor]

    def carries(self, tensor: Tensor) -> bool:
        return any(
            tensor.numel() == one.numel() and tensor.untyped_storage().data_ptr() == one.untyped_storage().data_ptr()
            for one in self.carried
        )


@dataclass
class KnownAdd:
    """An Add of a tensor that its module carries along and one that it computed."""

    module: str
    block: str
    skip: np.ndarray[Any, Any]
    branch: np.ndarray[Any, Any]


@dataclass
class AddWatcher(TorchFunctionMode):
    """Sees every addition of two tensors of one shape while the model runs, and which module does it."""

    frames: list[Frame] = field(default_factory=list)
    known: list[KnownAdd] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operands = [a for a in args[:2] if isinstance(a, Tensor)]
        is_add = func in ADDS and len(operands) == 2 and operands[0].shape == operands[1].shape and self.frames
        if not is_add or not operands[0].is_floating_point() or not operands[0].ndim:
            return func(*args, **(kwargs or {}))
        frame = self.frames[-1]
        carried = [frame.carries(operand) for operand in operands]
        block = type(frame.module).__name__
        if sum(carried) != 1:
            self.unknown.append(f"{frame.path} ({block})")
            return func(*args, **(kwargs or {}))
        skip, branch = operands if carried[0] else reversed(operands)
        self.known.append(KnownAdd(frame.path, block, skip.numpy().copy(), branch.numpy().copy()))
        result = func(*args, **(kwargs or {}))
        frame.carried.append(result)
        return result

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        hooks = [hook for path, module in model.named_modules() for hook in self._hooks(path, module)]
        try:
            with self:
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _hooks(self, path: str, module: nn.Module) -> Iterator[Any]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            self.frames.append(Frame(path, module, list(tensors([*args, *kwargs.values()]))))

        def leave(module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
            self.frames.pop()
            if self.frames and path.rpartition(".")[2] in SHORTCUTS:
                self.frames[-1].carried.extend(tensors([result]))

        yield module.register_forward_pre_hook(enter, with_kwargs=True)
        yield module.register_forward_hook(leave, with_kwargs=True)


def tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)


def load_timm() -> Any:
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        # The index has it for CUDA only. Beside a torch for the CPU its operators are missing, which timm never calls.
        for name in ("nms", "qnms"):
            signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{name}", signature)
    import timm

    return timm


def create(name: str) -> tuple[nn.Module, list[int]]:
    """The model, and the shape of the smallest input that it takes."""
    timm = load_timm()
    if not timm.is_model(name):
        raise SystemExit(f'timm {timm.__version__} has no architecture "{name}"')
    made_for = timm.get_pretrained_cfg(name).input_size if timm.is_model_pretrained(name) else (3, 224, 224)
    tries = [(size, given) for size in (*SIZES, made_for[-1]) for given in ({"img_size": size}, {})]
    why = ""
    for size, given in tries:
        shape = [BATCH, 3, size, size]
        torch.manual_seed(0)
        try:
            model = timm.create_model(name, exportable=True, **given).eval()
            with torch.no_grad():
                model(torch.zeros(shape))
            return model, shape
        except Exception as error:  # each architecture has its own way to refuse a size
            why = f"{type(error).__name__}: {error}"
    raise SystemExit(f"{name}: it takes no input of any size that was tried; at last {why}")


def make_realistic(model: nn.Module, shape: list[int]) -> None:
    """Values as training leaves them where random weights have trivial ones."""
    generator = torch.Generator().manual_seed(1)
    norms = [m for m in model.modules() if type(m).__name__.lower().find("norm") >= 0]
    of_norms = {id(p) for norm in norms for p in norm.parameters(recurse=False)}
    for path, parameter in model.named_parameters():
        name = path.rpartition(".")[2]
        if name == "weight" and id(parameter) in of_norms:
            parameter.data.uniform_(0.5, 1.5, generator=generator)
        elif name == "bias":
            parameter.data.normal_(0, 0.1, generator=generator)
        elif (parameter.ndim <= 3 and float(parameter.detach().abs().max()) < 1e-3) or name.startswith("gamma"):
            parameter.data.uniform_(0.2, 1.0, generator=generator)  # a layer scale, or a token of zeros
    batch_norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in batch_norms:
        norm.reset_running_stats()
        norm.momentum = None  # the average of all that it sees
        norm.train()
    with torch.no_grad():
        for _ in range(4 if batch_norms else 0):
            model(torch.randn([8, *shape[1:]], generator=generator))
    model.eval()


def export_all(model: nn.Module, sample: Tensor, file: Path, exporters: list[str]) -> dict[str, dict[str, Any]]:
    """With each exporter: seconds, and what went wrong, if anything."""
    ways: dict[str, tuple[Path, dict[str, Any]]] = {
        "trace": (file.with_suffix(".onnx"), {"dynamo": False, "opset_version": 17}),
        "dynamo": (file.with_suffix(".dynamo.onnx"), {"dynamo": True, "external_data": False, "verbose": False}),
    }
    done = {}
    for way in exporters:
        target, options = ways[way]
        start, error = time.perf_counter(), ""
        target.unlink(missing_ok=True)
        try:
            torch.onnx.export(model, (sample,), str(target), input_names=["x"], output_names=["y"], **options)
        except Exception as raised:  # an exporter may raise anything
            error = f"{type(raised).__name__}: {raised}".strip().partition("\n")[0][:300]
        done[way] = {"seconds": time.perf_counter() - start, "error": error}
    return done


def main(folder: str, name: str, *exporters: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    model, shape = create(name)
    make_realistic(model, shape)
    generator = torch.Generator().manual_seed(2)
    calibration, test = (torch.randn([n, *shape[1:]], generator=generator) for n in (BATCH * CALIBRATION_RUNS, BATCH))
    watcher = AddWatcher()
    with torch.no_grad(), watcher.watching(model):
        model(test)
    file = Path(folder, name)
    with torch.no_grad():
        exports = export_all(model, test, file, list(exporters))
    operands = {f"{n}.{side}": getattr(a, side) for n, a in enumerate(watcher.known) for side in ("skip", "branch")}
    np.savez(file.with_suffix(".npz"), calibration=calibration.numpy(), test=test.numpy(), **operands)
    about = {
        "versions": {package: version(package) for package in ("timm", "torch", "onnxscript")},
        "input": shape,
        "parameters": sum(p.numel() for p in model.parameters()),
        "adds": [{"module": a.module, "block": a.block} for a in watcher.known],
        "unknown_adds": watcher.unknown,
        "exports": exports,
    }
    file.with_suffix(".json").write_text(json.dumps(about, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
