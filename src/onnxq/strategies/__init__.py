"""Hypothesis strategies that draw models with known ground truth, valid by construction.

Draw a topology (plain data, the reproducer), or a model that `build` made of one:

    @given(residual_models())
    def test_my_quantizer(labelled: LabelledModel) -> None:
        quantized = my_quantizer(labelled.model)
        for add in labelled.adds:
            ...
"""

from hypothesis import strategies as st

from onnxq.strategies.labelled import LabelledAdd, LabelledModel
from onnxq.strategies.model_topology import ModelTopology, Step
from onnxq.strategies.models import build_model, calibration_feeds, model_topologies, models
from onnxq.strategies.precision import build_precision, precision_models, precision_topologies
from onnxq.strategies.residual import build, residual_models, residual_topologies
from onnxq.strategies.topology import Block, Piece, PrecisionTopology, Topology
from onnxq.strategies.weakened import WeakenedModel, weaken, weakened
from onnxq.strategies.weaknesses import WEAKNESSES

st.register_type_strategy(LabelledModel, st.one_of(residual_models(), models()))  # for `st.from_type`

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
    "models",
    "model_topologies",
    "build_model",
    "Step",
    "ModelTopology",
    "calibration_feeds",
    "weakened",
    "weaken",
    "WeakenedModel",
    "WEAKNESSES",
    "LabelledAdd",
    "LabelledModel",
]
