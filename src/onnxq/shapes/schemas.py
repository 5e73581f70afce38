"""Which operators a model uses: looked up by domain, name and the model's opsets."""

from __future__ import annotations

import onnx
from onnx import ModelProto, NodeProto, OperatorSetIdProto
from onnx.defs import OpSchema, SchemaError


class Operators:
    """The operators that a model can name, at the versions that it imports."""

    def __init__(self, model: ModelProto) -> None:
        self.imports: list[OperatorSetIdProto] = list(model.opset_import)
        self._versions = {_canonical(entry.domain): entry.version for entry in self.imports}
        self._functions = frozenset((_canonical(f.domain), f.name) for f in model.functions)

    def version(self, domain: str) -> int | None:
        """The version that the model imports of a domain."""
        return self._versions.get(_canonical(domain))

    def schema(self, node: NodeProto) -> OpSchema | None:
        """The node's schema at the model's opset; None for functions, custom operators and typing errors."""
        version = self.version(node.domain)
        if version is None:
            return None
        try:
            return onnx.defs.get_schema(node.op_type, version, _canonical(node.domain))
        except SchemaError:
            return None

    def is_function(self, node: NodeProto) -> bool:
        """Whether the node calls a function that the model brings along."""
        return (_canonical(node.domain), node.op_type) in self._functions

    def is_opaque(self, node: NodeProto) -> bool:
        """Whether nothing is known of the operator: only declarations tell the types of its outputs."""
        return not self.is_function(node) and self.schema(node) is None


def _canonical(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
