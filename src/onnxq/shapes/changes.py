"""What a step of the preparation changed, for the report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that preparation changed.

    Attributes:
        rule: The rule that asked for it: "S2" stale output shape, "S4" stale element type, "S5" stale value_info,
            "S7" declaration in a body, "S8" order or names of nodes, "F9" operator set.
        where: The tensor or node, for a person: `output "y"`, `node "conv1" (Conv)`, with the body it is in.
        what: Before and after: `declared float[], is float[3, 5]`.
    """

    rule: str
    where: str
    what: str
