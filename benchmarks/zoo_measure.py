"""Quantizes one exported architecture with onnxq and ModelOpt, and finds its Adds. Part of zoo.py."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import onnxq
from onnxq.errors import OnnxqError
from onnxq.invariants import ModelPair, check, quantized_inputs
from onnxq.numerics import output_sqnr, run_model
from onnxq.quantizers import Settings, resolve

EXPORTERS = {"trace": ".onnx", "dynamo": ".dynamo.onnx"}
"""Exporter -> how the names of its files end."""

OPTIONS = {"calibration_method": "max", "high_precision_dtype": "fp32"}

TOOLS = ("onnxq", "modelopt")
VERDICTS = ("skip", "branch", "both", "one", "none")
"""What a tool can quantize of an Add; "one" where it isn't known which is the skip."""

SAME = 1e-3
"""Two tensors are the same one if they differ by less than this part of their norm."""


@dataclass(frozen=True)
class Add:
    """An Add of two computed tensors of one shape, in an exported file.

    Attributes:
        output: What it yields.
        operands: What it adds.
        module: Where in the PyTorch model it stands, and the class of that; "" if its skip isn't known.
        skip: Which operand is the skip; None if it isn't known.
        rule: The rule by which onnxq decided.
        quantized: Tool -> the operands that it quantizes.
    """

    output: str
    operands: list[str]
    module: str
    skip: int | None
    rule: str = ""
    quantized: dict[str, list[int]] = field(default_factory=dict)

    def verdict(self, tool: str) -> str:
        """What the tool quantizes: "skip", "branch", "both", "none", or "one" where the skip isn't known."""
        found = self.quantized[tool]
        if len(found) != 1:
            return "both" if found else "none"
        if self.skip is None:
            return "one"
        return "skip" if found == [self.skip] else "branch"


@dataclass(frozen=True)
class Result:
    """What came of one exported file.

    Attributes:
        model: Name of the architecture.
        exporter: Which of torch's exporters made the file.
        versions: Package -> version, of what exported it.
        input: Shape of the input.
        nodes: How many the file has, without Constants.
        adds: Its Adds.
        missing: Where Adds stand whose skip is known, and which the file doesn't have.
        violations: What `onnxq check` finds in onnxq's result.
        sqnr: Tool -> SQNR of the output in dB.
        seconds: Tool -> what quantizing took.
        errors: What failed -> why.
    """

    model: str
    exporter: str
    versions: dict[str, str] = field(default_factory=dict)
    input: list[int] = field(default_factory=list)
    nodes: int = 0
    adds: list[Add] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    sqnr: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def known(self) -> list[Add]:
        return [add for add in self.adds if add.skip is not None]


def measure(model: str, exporter: str, folder: Path, modelopt_python: str | None, time_limit: float) -> Result:
    """Quantize one exported file with both tools, and hold what they do with its Adds against PyTorch."""
    about = json.loads((folder / f"{model}.json").read_text(encoding="utf-8"))
    result = Result(model, exporter, about["versions"], about["input"])
    failed = about["exports"][exporter]["error"]
    if failed:
        return replace(result, errors={"export": failed})
    samples = np.load(folder / f"{model}.npz")
    proto = onnx.load_model(folder / f"{model}{EXPORTERS[exporter]}")
    made = {"onnxq": with_onnxq(proto, samples["calibration"])}
    if modelopt_python:
        made["modelopt"] = with_modelopt(proto, samples["calibration"], modelopt_python, time_limit)
    adds, missing = find_adds(proto, samples, about["adds"])
    sqnr, errors = {}, {tool: one.error for tool, one in made.items() if one.error}
    for tool, one in made.items():
        if one.model is not None:
            adds = [with_reads(add, tool, quantized_inputs(ModelPair(proto, one.model))) for add in adds]
            try:
                sqnr[tool] = sqnr_of(proto, one.model, samples["test"])
            except OnnxqError as error:
                errors[tool] = f"its result doesn't run: {error}"
    own = made["onnxq"]
    return replace(
        result,
        versions={**about["versions"], **{tool: one.version for tool, one in made.items()}},
        nodes=sum(node.op_type != "Constant" for node in proto.graph.node),
        adds=[replace(add, rule=own.rules.get(add.output, "")) for add in adds],
        missing=missing,
        violations=[f"{v.invariant}: {v.where}" for v in check(proto, own.model)] if own.model is not None else [],
        sqnr=sqnr,
        seconds={tool: one.seconds for tool, one in made.items()},
        errors=errors,
    )


def with_reads(add: Add, tool: str, found: Mapping[str, Sequence[str]]) -> Add:
    """The Add with what a tool quantizes of it; `found` has it by the first output of each node."""
    slots = [slot for slot, name in enumerate(add.operands) if name in found.get(add.output, ())]
    return replace(add, quantized={**add.quantized, tool: slots})


def sqnr_of(reference: onnx.ModelProto, result: onnx.ModelProto, sample: NDArray[Any]) -> float:
    expected, got = (run_model(model, [{"x": sample}]) for model in (reference, result))
    return min(output_sqnr(expected, got).values())


@dataclass(frozen=True)
class Made:
    """What a tool made of a model; of onnxq also the rule that decided on each node, by its first output."""

    model: onnx.ModelProto | None
    version: str
    seconds: float
    error: str = ""
    rules: Mapping[str, str] = field(default_factory=dict)


def with_onnxq(model: onnx.ModelProto, calibration: NDArray[Any]) -> Made:
    start = time.perf_counter()
    try:
        result = onnxq.quantize(model, calibration_data={"x": calibration}, **OPTIONS)
    except Exception as error:  # a crash is a finding, too
        return Made(None, onnxq.__version__, time.perf_counter() - start, f"{type(error).__name__}: {error}")
    placement = result.placement
    rules = {placement.labels[edge].output: decision.reason.rule.name for edge, decision in placement.items()}
    return Made(result.model, onnxq.__version__, time.perf_counter() - start, rules=rules)


def with_modelopt(model: onnx.ModelProto, calibration: NDArray[Any], python: str, time_limit: float) -> Made:
    quantizer = resolve("modelopt", Settings({"modelopt": python}, time_limit))
    start = time.perf_counter()
    try:
        result = quantizer.quantize(model, {"x": calibration}, OPTIONS)
    except OnnxqError as error:
        return Made(None, quantizer.version, time.perf_counter() - start, str(error))
    return Made(result, quantizer.version, time.perf_counter() - start)


def find_adds(
    model: onnx.ModelProto, samples: Mapping[str, NDArray[Any]], known: Sequence[Mapping[str, str]]
) -> tuple[list[Add], list[str]]:
    """The Adds of a file, with the skip where PyTorch knows it; and where known ones stand that the file hasn't."""
    values = values_inside(model, {"x": samples["test"]})
    waiting = {n: (samples[f"{n}.skip"], samples[f"{n}.branch"]) for n in range(len(known))}
    where = ["{module} ({block})".format(**add) for add in known]
    adds = []
    for node in model.graph.node:
        if node.op_type != "Add" or not all(name in values for name in node.input):
            continue
        pair = [values[name] for name in node.input]
        if pair[0].shape != pair[1].shape or not pair[0].ndim:
            continue
        found = [(n, s) for n, wanted in waiting.items() for s in (0, 1) if are_same([pair[s], pair[1 - s]], wanted)]
        number, skip = found[0] if found else (None, None)
        waiting.pop(number, None)
        adds.append(Add(node.output[0], list(node.input), "" if number is None else where[number], skip))
    return adds, [where[n] for n in waiting]


def values_inside(model: onnx.ModelProto, sample: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """What the Adds of computed tensors read, by tensor."""
    stored = {tensor.name for tensor in model.graph.initializer}
    stored |= {name for node in model.graph.node if node.op_type == "Constant" for name in node.output}
    given = {value.name for value in model.graph.input}
    names = dict.fromkeys(name for node in model.graph.node if node.op_type == "Add" for name in node.input)
    probed = onnx.ModelProto()
    probed.CopyFrom(model)
    del probed.graph.output[:]
    probed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in stored | given)
    return {**run_model(probed, [sample])[0], **sample}


def are_same(found: Iterable[NDArray[Any]], wanted: Iterable[NDArray[Any]]) -> bool:
    return all(
        a.shape == b.shape and float(np.linalg.norm(a - b)) <= SAME * float(np.linalg.norm(b))
        for a, b in zip(found, wanted, strict=True)
    )


def verdicts_of(adds: Sequence[Add], tool: str) -> str:
    counts = Counter(add.verdict(tool) for add in adds if tool in add.quantized)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]) or "-"
