"""The transformations of `onnxq.relations` by name, and placements in a form that they must not change.

Placements alone, without calibration or writing, are quick to compare: tests/fuzz holds whole quantizers against the
same transformations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from onnxq.placement import Placement
from onnxq.relations import storage, transforms
from onnxq.relations.transforms import Transform

Edges = Counter[tuple[str, str, int | None]]
"""Quantized edges: (first output of the reader, tensor, axis of the scales), with their number."""


def quantized_edges(placement: Placement, old_names: Mapping[str, str] | None = None) -> Edges:
    """The quantized edges in a form that doesn't depend on names that were changed, nor on order."""
    old = old_names or {}
    labels = ((placement.labels[edge], placement[edge].axis) for edge in placement.quantized)
    return Counter((old.get(at.output, at.output), old.get(at.tensor, at.tensor), axis) for at, axis in labels)


RELATIONS: Mapping[str, Transform] = MappingProxyType(
    {
        transform.__name__: transform
        for transform in (
            transforms.swap_operands,
            transforms.rename_all,
            transforms.unname_nodes,
            transforms.name_nodes_alike,
            transforms.reorder_nodes,
            transforms.insert_identities,
            transforms.insert_identities_on_constants,
            transforms.add_dead_nodes,
            storage.constants_as_nodes,
            storage.constants_as_initializers,
            storage.list_initializers_as_inputs,
            storage.raise_opset,
            storage.declare_all,
            storage.drop_value_info,
            storage.falsify_value_info,
            storage.prepared,
        )
    }
)
"""Every change of one model, by name."""
