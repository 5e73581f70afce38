"""The checks of a case: each looks at one run of the case and lists what is wrong, in readable blocks."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from functools import partial
from textwrap import indent
from types import MappingProxyType
from typing import TYPE_CHECKING

import onnxq.errors
from onnxq.corpus.element_types import cast_problems, initializer_type_problems, node_type_problems
from onnxq.corpus.format import Expect
from onnxq.corpus.limits import bounded_memory
from onnxq.errors import OnnxqError, PeerError
from onnxq.invariants import INVARIANTS
from onnxq.printable import printable
from onnxq.protos import opset_version
from onnxq.quantizers import DEFAULT
from onnxq.tensor_types import ValueType, value_type
from onnxq.testing import (
    DEFAULT_SQNR_DB,
    find_node,
    noise_problems,
    placement_problems,
    violation_blocks,
)

if TYPE_CHECKING:
    from onnxq.corpus.run import CaseRun

Check = Callable[["CaseRun"], list[str]]


def check_names(expect: Expect) -> tuple[str, ...]:
    """Which checks there are for an expectation, in the order in which they run.

    Args:
        expect: What holds under the quantizer's policy.

    Returns:
        Names in `CHECKS`: only "raises" for a refusal; else "quantizes", the invariants, what the case states, and,
        unless the case says that a model doesn't run, whether the result runs and is close to the float model.
    """
    if expect.raises is not None:
        return ("raises",)
    stated = {
        "quantized-add-inputs": expect.quantized_add_inputs is not None,
        "quantized-inputs": expect.quantized_inputs is not None,
        "outputs": expect.outputs is not None or expect.output_types is not None,
        "element-types": expect.node_types is not None or expect.initializer_types is not None,
        "casts": expect.casts is not None,
        "opset": expect.opset is not None,
        "relations": expect.relations is not None,
        "runs": expect.runs is not False,
        "close-to-float": expect.runs is not False and expect.float_runs is not False,
    }
    return ("quantizes", *INVARIANTS, *(name for name, is_stated in stated.items() if is_stated))


def run_check(name: str, run: CaseRun) -> list[str]:
    """Run one check.

    Args:
        name: One of `check_names(run.expect)`.
        run: The run of the case.

    Returns:
        What is wrong, one block each; [] if nothing is.
    """
    if run.quantized is None and name not in ("raises", "quantizes"):
        return [f"quantization failed: {run.failure}"]
    try:
        with bounded_memory():
            return [printable(problem) for problem in CHECKS[name](run)]
    except (
        AssertionError,
        OnnxqError,
    ) as error:  # what the check needs isn't there, such as a node that the case names
        return [printable(str(error))]


def _raises(run: CaseRun) -> list[str]:
    expect = run.expect
    wanted = getattr(onnxq.errors, expect.raises or "")
    if run.error is None:
        return [f"expected: {expect.raises}\nfound:    it was quantized without an error"]
    if run.quantizer != DEFAULT and run.float_model is not None:
        return []  # it refuses; in which words is up to it
    if not isinstance(run.error, wanted):
        return [f"expected: {expect.raises}\nfound:    {run.failure}{_traceback(run.error)}"]
    missing = [text for text in expect.mentions if text not in str(run.error)]
    return [f'expected: a message that mentions "{text}"\nfound:    {run.error}' for text in missing]


def _quantizes(run: CaseRun) -> list[str]:
    return [] if run.error is None else [f"{run.failure}{_traceback(run.error)}"]


def _invariant(name: str, run: CaseRun) -> list[str]:
    return violation_blocks(INVARIANTS[name](run.pair))


def _quantized_add_inputs(run: CaseRun) -> list[str]:
    expected = run.expect.quantized_add_inputs or {}
    nodes = {name: find_node(run.pair, name)[1] for name in expected}
    wrong = [
        f'"{name}" is a {n.op_type}, no Add or Sum' for name, n in nodes.items() if n.op_type not in ("Add", "Sum")
    ]
    return wrong or placement_problems(run.pair, expected)


def _quantized_inputs(run: CaseRun) -> list[str]:
    return placement_problems(run.pair, run.expect.quantized_inputs or {})


def _outputs(run: CaseRun) -> list[str]:
    declared = {value.name: value_type(value.type) for value in run.pair.quantized.graph.output}
    shapes = {name: _shape(kind) for name, kind in declared.items()}
    types = {name: str(ValueType(kind.elem_type, None, kind.kind)) for name, kind in declared.items()}
    wanted_shapes = {name: f"[{', '.join(map(str, dims))}]" for name, dims in (run.expect.outputs or {}).items()}
    return [
        f'output "{name}"\n    expected: {expected}\n    found:    {found.get(name, "no such output")}'
        for wanted, found in ((wanted_shapes, shapes), (run.expect.output_types or {}, types))
        for name, expected in wanted.items()
        if found.get(name) != expected
    ]


def _shape(kind: ValueType) -> str:
    if kind.shape is None:
        return "no shape"
    return f"[{', '.join('?' if dim is None else str(dim) for dim in kind.shape)}]"


def _element_types(run: CaseRun) -> list[str]:
    nodes = node_type_problems(run.pair.float_model, run.pair.quantized, run.expect.node_types or {})
    return nodes + initializer_type_problems(run.pair.quantized, run.expect.initializer_types or {})


def _casts(run: CaseRun) -> list[str]:
    return [] if run.expect.casts is None else cast_problems(run.pair.quantized, run.expect.casts)


def _opset(run: CaseRun) -> list[str]:
    found = opset_version(run.pair.quantized)
    return [] if found == run.expect.opset else [f"expected: opset {run.expect.opset}\nfound:    opset {found}"]


def _relations(run: CaseRun) -> list[str]:
    from onnxq.relations import find_relation

    relations = [find_relation(name) for name in run.expect.relations or ()]
    return violation_blocks([violation for relation in relations for violation in relation.check(run.trial)])


def _runs(run: CaseRun) -> list[str]:
    return run.running_problems


def _close_to_float(run: CaseRun) -> list[str]:
    least = run.expect.min_sqnr_db if run.expect.min_sqnr_db is not None else DEFAULT_SQNR_DB
    return noise_problems(run.noise, least)


def _traceback(error: Exception) -> str:
    """A crash is no refusal: who has to repair it needs to see where it happened."""
    if isinstance(error, PeerError) and error.output:
        return f"\n\nthe last that it printed:\n{indent(error.output, '    ')}"
    return "" if isinstance(error, OnnxqError) else "\n\n" + "".join(traceback.format_exception(error)).rstrip()


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "raises": _raises,
        "quantizes": _quantizes,
        **{name: partial(_invariant, name) for name in INVARIANTS},
        "quantized-add-inputs": _quantized_add_inputs,
        "quantized-inputs": _quantized_inputs,
        "outputs": _outputs,
        "element-types": _element_types,
        "casts": _casts,
        "opset": _opset,
        "relations": _relations,
        "runs": _runs,
        "close-to-float": _close_to_float,
    }
)
"""Every check by name. The names are stable: ids of tests and known failures hold them."""
