"""What the tests of builders ask of a model."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto


def run(model: ModelProto) -> dict[str, np.ndarray]:
    """Run in onnxruntime on normal inputs; a symbolic dim is 2."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feeds = {
        i.name: rng.standard_normal([d if isinstance(d, int) else 2 for d in i.shape]).astype(np.float32)
        for i in session.get_inputs()
    }
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def declared_shape(info: onnx.ValueInfoProto) -> list[int | str | None]:
    dims = info.type.tensor_type.shape.dim
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in dims]
