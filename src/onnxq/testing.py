"""Assertions for tests of quantizers: the public face of the invariants.

Each raises `AssertionError` with one readable block: which node or tensor, what was expected, what is there. Nodes may
be named by their own name or by a tensor that they yield.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto

from onnxq.calibration import make_feeds
from onnxq.errors import InvalidModelError
from onnxq.graph import MAIN_GRAPH
from onnxq.invariants import ModelPair, Violation, check, quantized_inputs
from onnxq.model_io import why_invalid
from onnxq.numerics import output_sqnr, run_model
from onnxq.placement import SelectionOptions, is_linear
from onnxq.protos import describe
from onnxq.rewrite import strip_pairs
from onnxq.scopes import tensor_key

Feed = Mapping[str, Any]
"""Input name -> array, for one run."""

DEFAULT_SQNR_DB = 10.0
"""Below this an output is noise rather than a rounded result: seeded random weights and inputs stay well above."""


def assert_exactly_one_quantized_add_input(
    quantized: ModelProto, add: str | None = None, *, skip: str | None = None
) -> None:
    """Of an Add that joins two branches exactly one input is quantized, as TensorRT's fusion wants it.

    Args:
        quantized: A model with Q/DQ.
        add: Name or output tensor of the Add (or Sum of two). None takes the only one with two variable inputs, or, if
            there are several, all those that onnxq's rules find to be residual once the Q/DQ are taken out.
        skip: The tensor that must be the quantized one, by its name in the float model.

    Raises:
        AssertionError: Naming each Add, what it reads quantized, and what was expected.
    """
    __tracebackhide__ = True
    pair = ModelPair(strip_pairs(quantized), quantized)
    adds = [find_node(pair, add)] if add is not None else _adds_to_check(pair)
    found, problems = quantized_inputs(pair), []
    for key, node in adds:
        got = found.get(key, [])
        if len(got) != 1 or (skip is not None and got != [skip]):
            wanted = (
                "exactly one input quantized" if skip is None else f'exactly one input quantized, the skip "{skip}"'
            )
            inputs = " and ".join(f'"{name}"' for name in pair_inputs(pair, node))
            problems.append(_block(f"{describe(node)}, which adds {inputs}", wanted, _list(got)))
    _fail_if(problems)


def assert_placement(quantized: ModelProto, expected: Mapping[str, Sequence[str]]) -> None:
    """Certain nodes read exactly certain tensors quantized.

    Args:
        quantized: A model with Q/DQ.
        expected: Node, by its name or output tensor -> names in the float model of the tensors that it must read
            quantized, in any order; [] for a node that must stay float.

    Raises:
        AssertionError: Naming each node that differs, what it reads quantized, and what was expected.
    """
    __tracebackhide__ = True
    pair = ModelPair(strip_pairs(quantized), quantized)
    _fail_if(placement_problems(pair, expected))


def assert_no_violations(
    float_model: ModelProto,
    quantized: ModelProto,
    *,
    policy: str = "tensorrt",
    selection: SelectionOptions | None = None,
    keep_io_types: bool | None = None,
    direct_io_types: bool = False,
    only: Sequence[str] | None = None,
) -> None:
    """All invariants hold, or some of them.

    Args:
        float_model: The model before quantization.
        quantized: The model after it.
        policy: Whose fusion rules it was made for: "tensorrt" or "onnxruntime".
        selection: What was asked to be quantized, where that wasn't everything.
        keep_io_types: Whether float32 inputs and outputs had to stay float32, as in `onnxq.quantize`.
        direct_io_types: Whether they may be integers too, as in `onnxq.quantize`.
        only: Names of the invariants in `onnxq.invariants.INVARIANTS`; None for all.

    Raises:
        AssertionError: Listing every violation.
    """
    __tracebackhide__ = True
    violations = check(
        float_model,
        quantized,
        policy=policy,
        selection=selection,
        keep_io_types=keep_io_types,
        direct_io_types=direct_io_types,
        only=only,
    )
    _fail_if(violation_blocks(violations))


def assert_io_preserved(float_model: ModelProto, quantized: ModelProto) -> None:
    """Inputs and outputs keep their names, order and element types.

    Raises:
        AssertionError: Naming each that changed.
    """
    __tracebackhide__ = True
    assert_no_violations(float_model, quantized, only=["io-preserved"])


def assert_shapes_preserved(float_model: ModelProto, quantized: ModelProto) -> None:
    """Inputs and outputs keep their ranks and known dims; a stale declaration of the float model isn't binding.

    Raises:
        AssertionError: Naming each that changed, with both shapes.
    """
    __tracebackhide__ = True
    assert_no_violations(float_model, quantized, only=["shapes-preserved"])


def assert_symbolic_dims_preserved(float_model: ModelProto, quantized: ModelProto) -> None:
    """Dims of inputs and outputs that the float model names keep their names.

    Raises:
        AssertionError: Naming each dim that lost its name.
    """
    __tracebackhide__ = True
    assert_no_violations(float_model, quantized, only=["symbolic-dims-preserved"])


def assert_valid(model: ModelProto) -> None:
    """The ONNX checker accepts the model in full.

    Raises:
        AssertionError: With what the checker says.
    """
    __tracebackhide__ = True
    problem = why_invalid(model)
    _fail_if([_block("model", "accepted by the ONNX checker with full_check", problem)] if problem else [])


def assert_runs(model: ModelProto, feeds: Feed | Iterable[Feed] | None = None) -> None:
    """Onnxruntime loads and runs the model, with its optimizations off and on.

    Args:
        model: Any model, complete in memory.
        feeds: What to run it on: one feed or several. None makes up one sample of seeded random numbers.

    Raises:
        AssertionError: With what the runtime says.
    """
    __tracebackhide__ = True
    _fail_if(running_problems(model, _as_feeds(model, feeds)))


def assert_close_to_float(
    float_model: ModelProto,
    quantized: ModelProto,
    feeds: Feed | Iterable[Feed] | None = None,
    *,
    min_sqnr_db: float | Mapping[str, float] = DEFAULT_SQNR_DB,
) -> None:
    """The outputs of both models are alike.

    Args:
        float_model: The model before quantization.
        quantized: The model after it.
        feeds: What to run both on: one feed or several. None makes up one sample of seeded random numbers.
        min_sqnr_db: Least signal to quantization noise ratio in dB: one number for every float output, or a number for
            each of the outputs that count.

    Raises:
        AssertionError: Naming each output that is too far off, with its ratio.
    """
    __tracebackhide__ = True
    samples = _as_feeds(float_model, feeds)
    try:
        reference, results = run_model(float_model, samples), run_model(quantized, samples)
    except InvalidModelError as error:
        raise AssertionError(str(error)) from None
    _fail_if(noise_problems(output_sqnr(reference, results), min_sqnr_db))


def find_node(pair: ModelPair, name: str) -> tuple[str, NodeProto]:
    """The node of the float model that has a name, or yields a tensor of that name, with its key in `quantized_inputs`.

    In a body the name may be preceded by the body's path, `if1.then_branch/conv`: two branches may use one name.

    Raises:
        AssertionError: There is none, or more than one.
    """
    nodes = pair.float_model.graph.node
    main = [n for n in nodes if n.name == name] or [n for n in nodes if name in n.output]
    found = [(n.output[0], n) for n in main] or _in_bodies(pair, name)
    if not found:
        raise AssertionError(f'the model has no node "{name}", nor one that yields a tensor "{name}"')
    if len(found) > 1:
        outputs = ", ".join(f'"{key}"' for key, _ in found)
        raise AssertionError(f'{len(found)} nodes are named "{name}": name the one by its output, of {outputs}')
    return found[0]


def _in_bodies(pair: ModelPair, name: str) -> list[tuple[str, NodeProto]]:
    index = pair.plan.index
    paths = {number: index.scopes[scope].path for number, scope in enumerate(index.node_scope) if scope != MAIN_GRAPH}

    def called(names: Callable[[NodeProto], Iterable[str]]) -> list[tuple[str, NodeProto]]:
        return [
            (pair.key(number), index.nodes[number])
            for number, path in paths.items()
            if any(name in (found, tensor_key(path, found)) for found in names(index.nodes[number]) if found)
        ]

    return called(lambda node: [node.name]) or called(lambda node: node.output)


def placement_problems(pair: ModelPair, expected: Mapping[str, Sequence[str | Sequence[str]]]) -> list[str]:
    """What differs from an expected placement; a sequence among the tensors stands for any one of its members."""
    found, problems = _placed(pair), []
    for name, tensors in expected.items():
        key, node = find_node(pair, name)
        got = found.get(key)
        if got is None:
            problems.append(
                _block(describe(node), f"{_list(tensors)} quantized", "the node is gone, or reads no float")
            )
        elif not _is_match(got, tensors):
            problems.append(_block(describe(node), f"{_list(tensors)} quantized", _list(got)))
    return problems


def violation_blocks(violations: Iterable[Violation]) -> list[str]:
    """Violations as they are shown."""
    return [str(violation) for violation in violations]


def running_problems(model: ModelProto, feeds: Sequence[Feed]) -> list[str]:
    """Why onnxruntime doesn't load or run a model, with its optimizations off and on."""
    problems = []
    for optimize in (False, True):
        try:
            run_model(model, feeds, optimize=optimize)
        except InvalidModelError as error:
            problems.append(str(error))
    return problems


def noise_problems(ratios: Mapping[str, float], min_sqnr_db: float | Mapping[str, float]) -> list[str]:
    """Outputs whose signal to noise ratio is too small."""
    least = min_sqnr_db if isinstance(min_sqnr_db, Mapping) else dict.fromkeys(ratios, min_sqnr_db)
    problems = []
    for name, bound in least.items():
        ratio = ratios.get(name)
        if ratio is None or not ratio >= bound:
            got = "no float output of that name" if ratio is None else f"{ratio:.1f} dB"
            problems.append(_block(f'output "{name}"', f"at least {bound:g} dB of signal to quantization noise", got))
    return problems


def pair_inputs(pair: ModelPair, node: NodeProto) -> list[str]:
    """Variable inputs of a node of the float model."""
    constants = {tensor.name for tensor in pair.float_model.graph.initializer}
    return [name for name in node.input if name and name not in constants]


def _adds_to_check(pair: ModelPair) -> list[tuple[str, NodeProto]]:
    index, residuals = pair.plan.index, pair.plan.placement.residuals
    joins = [r for r in residuals if all(index.is_variable(t) for t in index.inputs[r.node])]
    chosen = joins if len(joins) == 1 else [r for r in residuals if r.is_residual]
    if not chosen:
        raise AssertionError("the model has no residual Add that onnxq's rules find; name the one meant by add=")
    return [(pair.key(residual.node), index.nodes[residual.node]) for residual in chosen]


def _as_feeds(model: ModelProto, feeds: Feed | Iterable[Feed] | None) -> list[Feed]:
    if feeds is None:
        return list(make_feeds(model, None))
    return [feeds] if isinstance(feeds, Mapping) else list(feeds)


def _placed(pair: ModelPair) -> dict[str, list[str]]:
    """`quantized_inputs`, but under onnxruntime's policy without a bias that is stored as int32.

    onnxruntime's kernels add such a bias, at the product of the other two scales, before they round: it is no choice of
    where to quantize, and as exact as a float one.
    """
    found = quantized_inputs(pair)
    if pair.policy != "onnxruntime":
        return found
    index = pair.plan.index
    for node, slot, tensor, quantization in pair.edges():
        if slot != 2 or quantization is None or not is_linear(index, node):
            continue
        graph = pair.graph_of(node)
        stored = graph.constants.get(quantization.dequantize.input[0]) if graph is not None else None
        if stored is not None and stored.dtype == np.int32:
            found[pair.key(node)].remove(tensor)
    return found


def _is_match(got: Sequence[str], expected: Sequence[str | Sequence[str]]) -> bool:
    """Whether each expected entry can be given one of the tensors that are there, and none is left over."""
    if not expected:
        return not got
    first, *rest = expected
    choices = [first] if isinstance(first, str) else first
    return any(
        name in choices and _is_match([*got[:position], *got[position + 1 :]], rest)
        for position, name in enumerate(got)
    )


def _list(tensors: Sequence[str | Sequence[str]]) -> str:
    names = [f'"{t}"' if isinstance(t, str) else "one of " + "/".join(f'"{n}"' for n in t) for t in tensors]
    return " and ".join(names) or "no input"


def _block(where: str, expected: str, found: str) -> str:
    return f"{where}\n    expected: {expected}\n    found:    {found}"


def _fail_if(problems: Sequence[str]) -> None:
    __tracebackhide__ = True
    if problems:
        raise AssertionError("\n" + "\n".join(problems))
