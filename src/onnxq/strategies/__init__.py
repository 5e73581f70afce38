"""Hypothesis strategies that draw models with known ground truth, valid by construction.

Draw a topology (plain data, the reproducer), or a model that `build` made of one:

    @given(residual_models())
    def test_my_quantizer(labelled: LabelledModel) -> None:
        quantized = my_quantizer(labelled.model)
        for add in labelled.adds:
            ...
"""

from onnxq.strategies.labelled import LabelledAdd, LabelledModel
from onnxq.strategies.precision import build_precision, precision_models, precision_topologies
from onnxq.strategies.residual import build, residual_models, residual_topologies
from onnxq.strategies.topology import Block, Piece, PrecisionTopology, Topology
from onnxq.strategies.weakened import WeakenedModel, weaken, weakened
from onnxq.strategies.weaknesses import WEAKNESSES

__all__ = [
    "residual_models",
    "residual_topologies",
    "build",
    "Block",
    "Topology",
    "precision_models",
    "precision_topologies",
    "build_precision",
    "Piece",
    "PrecisionTopology",
    "weakened",
    "weaken",
    "WeakenedModel",
    "WEAKNESSES",
    "LabelledAdd",
    "LabelledModel",
]
