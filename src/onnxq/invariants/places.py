"""Invariants of where Q/DQ stand: one input of each residual Add, and never what rounding destroys."""

from __future__ import annotations

from onnxq.graph import ABSENT, Edge
from onnxq.invariants.pair import ModelPair
from onnxq.invariants.quantized_graph import Quantization
from onnxq.invariants.violation import Violation
from onnxq.placement import Rule, never_quantized
from onnxq.protos import describe

_UNSELECTED = (Rule.P2, Rule.NOT_SELECTED)


def residual_skip_only(pair: ModelPair) -> list[Violation]:
    """Of a residual Add exactly the skip is quantized; none, if the trunk's convolution is float (R5 to R9).

    Only for targets that fold the Add into the convolution. An Add that the user didn't select has no quantized input.
    Where the branches are equally long and heavy (R7), a kernel can fold the Add into either, so either input may be
    the skip.
    """
    if pair.policy != "tensorrt":
        return []
    index = pair.plan.index
    quantized: dict[int, dict[int, Quantization]] = {}
    for node, slot, _, quantization in pair.edges():
        if quantization is not None:
            quantized.setdefault(node, {})[slot] = quantization
    found = []
    for residual in pair.plan.placement.residuals:
        if residual.skip is None or residual.backbone is None or pair.counterpart(residual.node) is None:
            continue
        rule = pair.plan.placement[Edge(residual.node, residual.skip)].reason.rule
        skips = (0, 1) if residual.is_tie else (residual.skip,)
        allowed: list[set[int]] = [] if rule in _UNSELECTED else [{skip} for skip in skips]
        if rule in _UNSELECTED or set(quantized.get(residual.backbone, {})) < {0, 1}:
            allowed.append(set())
        got = set(quantized.get(residual.node, {}))
        if got not in allowed:
            names = [index.tensor_names[t] for t in index.inputs[residual.node]]
            skip = " or ".join(f'"{names[slot]}"' for slot in skips)
            expected = f"only the skip {skip} is quantized ({residual.why})"
            if rule in _UNSELECTED:
                expected = f"no input is quantized: {rule.value}"
            shown = " and ".join(f'"{names[slot]}"' for slot in sorted(got)) or "neither input"
            where = pair.where(residual.node)
            found.append(Violation("residual-skip-only", where, expected, f"{shown} quantized"))
    return found


def never_rounded(pair: ModelPair) -> list[Violation]:
    """Ranks, indices, probabilities and parameters are never quantized (P6).

    Where an integer kernel of the target has stored the tensor already, there is nothing left to keep exact (O4).
    """
    index, placement = pair.plan.index, pair.plan.placement
    return [
        Violation(
            "never-rounded",
            f'input {slot} ("{tensor}") of {pair.where(node)}',
            "float: rounding it would change more than its last digits",
            f"quantized by {describe(quantization.dequantize)}",
        )
        for node, slot, tensor, quantization in pair.edges()
        if quantization is not None
        and index.inputs[node][slot] != ABSENT
        and never_quantized(index, node, slot)
        and not placement[Edge(node, slot)].quantize
    ]
