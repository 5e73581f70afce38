"""Pure checks over a float model and what any quantizer made of it.

Each invariant is a function from the pair of models to its violations, and holds for every correct quantization. They
are the oracles of the corpus, of `onnxq check`, and of people's own tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType

import onnx

from onnxq.errors import UsageError
from onnxq.invariants.pair import ModelPair, quantized_inputs
from onnxq.invariants.places import never_rounded, residual_skip_only
from onnxq.invariants.scales import (
    copies_share_scale,
    no_dangling_pairs,
    no_repeated_pairs,
    scales_positive,
    weight_axes,
    weights_reconstructed,
)
from onnxq.invariants.structure import (
    io_preserved,
    operators_preserved,
    outputs_float,
    shapes_preserved,
    symbolic_dims_preserved,
    unique_names,
    valid,
)
from onnxq.invariants.violation import Violation
from onnxq.pipeline import keeps_io_types
from onnxq.placement import SelectionOptions
from onnxq.policies import POLICIES

INVARIANTS: Mapping[str, Callable[[ModelPair], list[Violation]]] = MappingProxyType(
    {
        "valid": valid,
        "unique-names": unique_names,
        "io-preserved": io_preserved,
        "shapes-preserved": shapes_preserved,
        "symbolic-dims-preserved": symbolic_dims_preserved,
        "operators-preserved": operators_preserved,
        "outputs-float": outputs_float,
        "residual-skip-only": residual_skip_only,
        "never-rounded": never_rounded,
        "scales-positive": scales_positive,
        "weight-axes": weight_axes,
        "weights-reconstructed": weights_reconstructed,
        "no-repeated-pairs": no_repeated_pairs,
        "no-dangling-pairs": no_dangling_pairs,
        "copies-share-scale": copies_share_scale,
    }
)
"""Every invariant by name, in the order in which a person would want to read about them."""


def check(
    float_model: onnx.ModelProto,
    quantized: onnx.ModelProto,
    *,
    policy: str = "tensorrt",
    selection: SelectionOptions | None = None,
    keep_io_types: bool | None = None,
    direct_io_types: bool = False,
    only: Sequence[str] | None = None,
) -> list[Violation]:
    """Check a quantized model, made by any tool, against the float model that it came from.

    Args:
        float_model: The model before quantization.
        quantized: The model after it, with explicit Q/DQ.
        policy: Whose fusion rules it was made for: "tensorrt" or "onnxruntime".
        selection: What was asked to be quantized; None for everything that the rules take.
        keep_io_types: Whether float32 inputs and outputs had to stay float32, as in `onnxq.quantize`.
        direct_io_types: Whether they may be integers too, as in `onnxq.quantize`.
        only: Names of the invariants to check; None for all.

    Returns:
        What is violated, in the order of `INVARIANTS`.

    Raises:
        UsageError: An invariant or the policy is unknown, or two options contradict each other.
        InvalidModelError: The float model is no usable model.
    """
    if policy not in POLICIES:
        raise UsageError(f"policy={policy!r} is unknown, it can be: {', '.join(POLICIES)}")
    for name in only or ():
        if name not in INVARIANTS:
            near = get_close_matches(name, INVARIANTS, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise UsageError(f'"{name}" is no invariant{hint} (there are: {", ".join(INVARIANTS)})')
    keep = keeps_io_types(keep_io_types, direct_io_types)
    pair = ModelPair(float_model, quantized, policy, selection or SelectionOptions(), keep, direct_io_types)
    return [v for name, find in INVARIANTS.items() if only is None or name in only for v in find(pair)]


__all__ = ["INVARIANTS", "POLICIES", "ModelPair", "Violation", "check", "quantized_inputs"]
