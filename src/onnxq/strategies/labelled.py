"""Models that carry the ground truth of their residual Adds."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from onnxq.strategies.model_topology import ModelTopology
from onnxq.strategies.topology import PrecisionTopology, Topology


@dataclass(frozen=True, slots=True)
class LabelledAdd:
    """What must hold of one Add, Sum or Sub under the policy `tensorrt`.

    Attributes:
        node: The node's name: for messages only, nodes may be unnamed or equally named.
        output: Its output tensor, which identifies it.
        inputs: Its input tensors in the order of the operands.
        skip: The input that must be the one quantized. None: not residual, all inputs stay float (but see `tie`).
        trunk: The input that must stay float because its convolution absorbs the Add. None where `skip` is.
        rule: The placement rule that decides: "R1" no candidate, "R4" no input is fusible, "R5" one is, "R6" the
            longer branch is the trunk, "R7" the heavier one is.
        tie: Residual, and the branches are alike in all that the rule counts: exactly one input must be quantized,
            and either is right. `skip` and `trunk` are None.
    """

    node: str
    output: str
    inputs: tuple[str, ...]
    skip: str | None
    trunk: str | None
    rule: str
    tie: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class LabelledModel:
    """A model with the ground truth of its residual Adds, known by construction.

    Attributes:
        model: A valid model.
        adds: One label for each Add, Sum and Sub of the graph, in node order; none at all in models of `build_model`.
        topology: The decisions that `build`, `build_precision` or `build_model` makes this very model of: the
            reproducer.
    """

    model: onnx.ModelProto
    adds: tuple[LabelledAdd, ...]
    topology: Topology | PrecisionTopology | ModelTopology

    def __repr__(self) -> str:
        makers = {Topology: "build", PrecisionTopology: "build_precision", ModelTopology: "build_model"}
        maker = makers[type(self.topology)]
        return f"{maker}({self.topology!r})"
