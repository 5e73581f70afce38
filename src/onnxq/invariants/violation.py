"""What an invariant reports: one fact that must hold and doesn't."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken invariant, at one place.

    Attributes:
        invariant: Its name.
        where: The node, tensor, input or output, readable.
        expected: What must hold there.
        found: What is there.
        cause: What kind of fault it is, in words without names: of violations that agree in this and in `invariant`
            one is worth reporting. "" where that isn't told.
    """

    invariant: str
    where: str
    expected: str
    found: str
    cause: str = field(default="", compare=False)

    def __str__(self) -> str:
        return (
            f"{self.where}\n    expected: {self.expected}\n    found:    {self.found}\n    invariant: {self.invariant}"
        )
