"""Makes the stored models of the corpus from their text: every `model.onnx` below this folder.

A case without a builder has a `model.txt` beside its `case.toml`: the model in ONNX's text form, which a person can
read. Here it is parsed, its weights are filled in, and what the text form can't say is added (`EDITS`). The same text
gives the same bytes, whatever else is in the corpus.

    python corpus/make_models.py            write every model
    python corpus/make_models.py --check    write nothing; exit 1 if a stored model differs from its text

A tensor that the text declares behind the graph's signature, without a value, and that no node yields, is a weight:

    g (float[1, 16, 8, 8] x) => (float[1, 16, 8, 8] y) <float[16, 16, 1, 1] w> { y = Conv(x, w) }

Weights depend on the names of the case and of the tensor only.
"""

from __future__ import annotations

import argparse
import io
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx.parser
from numpy.typing import NDArray
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

CORPUS = Path(__file__).parent
"""The folder that the cases lie in."""

MODEL_TEXT = "model.txt"
"""Name of the file with the text form of a case's model."""

Edit = Callable[[ModelProto], None]


def make_files(folder: Path) -> dict[str, bytes]:
    """Make what is stored beside the text of one case.

    Args:
        folder: The case's folder, at any place; its last two parts name the case.

    Returns:
        File name -> content: "model.onnx"; "calibration.npz" if the case has data; "weights.bin" for outside weights.
    """
    case = "/".join(folder.parts[-2:])
    model = onnx.parser.parse_model((folder / MODEL_TEXT).read_text(encoding="utf-8"))
    _fill_weights(model.graph, case)
    EDITS.get(case, _no_edit)(model)
    files = {}
    if case in EXTERNAL_DATA:
        files["weights.bin"] = _move_outside(model, EXTERNAL_DATA[case], "weights.bin")
    files["model.onnx"] = model.SerializeToString(deterministic=True)
    if case in CALIBRATION_DATA:
        files["calibration.npz"] = _npz(CALIBRATION_DATA[case]())
    return files


def model_folders() -> list[Path]:
    """Folders of all cases that store their model, sorted."""
    return sorted(path.parent for path in CORPUS.glob(f"*/*/{MODEL_TEXT}"))


def main(arguments: list[str] | None = None) -> int:
    """Write the stored models, or compare them with their texts; see the module's docstring."""
    parser = argparse.ArgumentParser(description="Make the stored models of the corpus from their text.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if a stored file differs")
    check = parser.parse_args(arguments).check
    stale = 0
    for folder in model_folders():
        for name, content in make_files(folder).items():
            file = folder / name
            if file.exists() and file.read_bytes() == content:
                continue
            stale += 1
            print(f"{'differs' if check else 'written'}: {file.relative_to(CORPUS)}")
            if not check:
                file.write_bytes(content)
    return int(check and stale > 0)


def _fill_weights(graph: GraphProto, case: str) -> None:
    """Give values to the declared tensors that nothing yields, in the graph and its bodies."""
    yielded = {name for node in graph.node for name in node.output}
    for value in [v for v in graph.value_info if v.name not in yielded]:
        kind = value.type.tensor_type
        shape = [dim.dim_value for dim in kind.shape.dim]
        weights = _weights(f"{case}:{value.name}", shape)
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        graph.initializer.append(numpy_helper.from_array(weights.astype(dtype), value.name))
        graph.value_info.remove(value)
    for body in _bodies(graph):
        _fill_weights(body, case)


def _bodies(graph: GraphProto) -> Iterator[GraphProto]:
    return (a.g for node in graph.node for a in node.attribute if a.type == AttributeProto.GRAPH)


def _weights(key: str, shape: list[int]) -> NDArray[np.float64]:
    """Seeded weights: He-uniform for matrices and kernels, positive numbers around 1 for vectors and scalars.

    Made from the raw bits of the generator, which numpy keeps the same over its versions.
    """
    bits = np.random.PCG64(zlib.crc32(key.encode())).random_raw(math.prod(shape))
    unit = (np.asarray(bits, np.uint64) >> np.uint64(11)).astype(np.float64).reshape(shape) / 2.0**53
    if len(shape) < 2:
        return unit + 0.5
    fan_in = shape[-2] if len(shape) < 4 else math.prod(shape[1:])
    return np.asarray((2 * unit - 1) * math.sqrt(3.0 / fan_in))


def _move_outside(model: ModelProto, names: frozenset[str], file: str) -> bytes:
    """Take the values of weights out of the model; returns what the file must hold."""
    content = b""
    for tensor in [t for t in model.graph.initializer if t.name in names]:
        entries = {"location": file, "offset": str(len(content)), "length": str(len(tensor.raw_data))}
        content += tensor.raw_data
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
    return content


def _npz(arrays: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # zip entries of numpy carry a fixed date, so the bytes are stable
    return buffer.getvalue()


# What the text form can't say.


def _no_edit(model: ModelProto) -> None:
    """Most models are just their text."""


def _constant_nodes(model: ModelProto) -> None:
    """Every initializer becomes a Constant node."""
    graph = model.graph
    nodes = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in graph.initializer]
    nodes += list(graph.node)
    del graph.initializer[:], graph.node[:]
    graph.node.extend(nodes)


def _initializers_as_inputs(model: ModelProto) -> None:
    """Initializers are listed among the inputs, as files before IR version 4 had to."""
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))


def _edit_array(name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Edit:
    def edit(model: ModelProto) -> None:
        (tensor,) = (t for t in model.graph.initializer if t.name == name)
        values = change(numpy_helper.to_array(tensor)).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, name))

    return edit


def _spread(axis: int, low: float, high: float) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Magnitudes along an axis spread geometrically from `low` to `high`."""

    def change(values: NDArray[Any]) -> NDArray[Any]:
        length = values.shape[axis]
        shape = [length if position == axis else 1 for position in range(values.ndim)]
        return np.asarray(values * np.geomspace(low, high, length).reshape(shape))

    return change


def _zero_channel(values: NDArray[Any]) -> NDArray[Any]:
    values = values.copy()
    values[1] = 0
    return values


def _tiny_channel(values: NDArray[Any]) -> NDArray[Any]:
    values = values.copy()
    values[1] *= 1e-5
    return values


def _vanishing_channel(values: NDArray[Any]) -> NDArray[Any]:
    values = values.copy()
    values[1] *= 1e-12
    return values


def _empty_initializer(name: str, shape: list[int]) -> Edit:
    def edit(model: ModelProto) -> None:
        model.graph.initializer.append(helper.make_tensor(name, TensorProto.FLOAT, shape, []))

    return edit


def _channel_shuffles(count: int) -> Edit:
    """Write the only Identity out as channel shuffles: each a Split, and a Concat of the halves in reverse."""

    def edit(model: ModelProto) -> None:
        nodes = list(model.graph.node)
        (position,) = (i for i, node in enumerate(nodes) if node.op_type == "Identity")
        tensor, shuffles = nodes[position].input[0], list[NodeProto]()
        for i in range(count):
            halves = [f"left{i}", f"right{i}"]
            shuffles.append(helper.make_node("Split", [tensor, "sizes"], halves, axis=1))
            tensor = f"shuffled{i}" if i < count - 1 else nodes[position].output[0]
            shuffles.append(helper.make_node("Concat", halves[::-1], [tensor], axis=1))
        del model.graph.node[:]
        model.graph.node.extend([*nodes[:position], *shuffles, *nodes[position + 1 :]])

    return edit


def _in_first_body(value: ValueInfoProto) -> Edit:
    """The first body, and it alone, declares the type of a tensor."""

    def edit(model: ModelProto) -> None:
        next(_bodies(model.graph)).value_info.append(value)

    return edit


EDITS: Mapping[str, Edit] = MappingProxyType(
    {
        "calibration/depthwise_tiny_channels": _edit_array("w", _spread(0, 1e-6, 1.0)),
        "calibration/empty_tensors": _empty_initializer("empty", [0, 16]),
        "calibration/zero_channel": _edit_array("w", _zero_channel),
        "onnxruntime_policy/bias_behind_dead_channel": _edit_array("w", _vanishing_channel),
        "placement/constant_left_matmul": _edit_array("a", _spread(0, 1e-3, 10.0)),
        "placement/convtranspose_channels": _edit_array("w", _spread(1, 1e-2, 10.0)),
        "placement/resize_scales": _empty_initializer("roi", [0]),
        "placement/resize_selected": _empty_initializer("roi", [0]),
        "precision/resize_one_empty_tensor": _empty_initializer("empty", [0]),
        "precision/weight_scale_underflows": _edit_array("w", _tiny_channel),
        "residual/linear_resize_in_trunk": _empty_initializer("roi", [0]),
        "residual/channel_shuffles": _channel_shuffles(30),
        "structure/constant_nodes": _constant_nodes,
        "structure/ir3_initializers_as_inputs": _initializers_as_inputs,
        "subgraphs/captured_type_is_stale": _in_first_body(
            helper.make_tensor_value_info("p", TensorProto.FLOAT16, [7])
        ),
        "subgraphs/if_identity_of_captured": _in_first_body(
            helper.make_tensor_value_info("p", TensorProto.FLOAT, [32, 16])
        ),
    }
)
"""Case -> what is done to its model after parsing."""

EXTERNAL_DATA: Mapping[str, frozenset[str]] = MappingProxyType({"structure/external_data": frozenset({"w", "v"})})
"""Case -> its weights that lie in a file beside the model."""


def _ramp(*shape: int) -> NDArray[np.float32]:
    """Numbers from -1 to 1 in order."""
    return np.linspace(-1, 1, math.prod(shape), dtype=np.float32).reshape(shape)


def _with_nan() -> dict[str, NDArray[Any]]:
    images = _ramp(3, 16, 4, 4)
    images[1, 5, 2, 2] = np.nan
    return {"image": images}


def _one_outlier() -> dict[str, NDArray[Any]]:
    """Values within -1 and 1, and one of 14, whose exponential is 1.2e6."""
    x = _ramp(1, 16, 8, 8)
    x[0, 3, 2, 5] = 14
    return {"x": x}


def _tiny_value() -> dict[str, NDArray[Any]]:
    images = _ramp(1, 16, 8, 8)
    images[0, 0, 0, 0] = 1e-12
    return {"x": images}


def _masked_row(dtype: type, *batch: int) -> dict[str, NDArray[Any]]:
    """A causal mask whose third row masks everything."""
    mask: NDArray[Any] = np.tril(np.ones((*batch, 16, 16), dtype))
    mask[..., 2, :] = 0
    return {"x": _ramp(*batch, 16, 16), "mask": mask}


def _choices(x: NDArray[np.float32], *choices: bool) -> dict[str, NDArray[Any]]:
    """Samples that take one branch or the other."""
    return {"x": x, "choice": np.array(choices)}


def _growing(count: int, *shape: int) -> NDArray[np.float32]:
    """Samples along the first axis, the last of which goes from -1 to 1."""
    steps = np.arange(1, count + 1, dtype=np.float32).reshape(-1, *(1 for _ in shape))
    return np.asarray(_ramp(*shape) * steps / np.float32(count))


def _half_images(greatest: float) -> dict[str, NDArray[Any]]:
    """An image of float16 whose first channel goes up to a number, and whose others are zero."""
    image = np.zeros((1, 16, 8, 8), np.float16)
    image[0, 0] = _ramp(8, 8) * greatest
    return {"x": image}


def _scores_and_mask() -> dict[str, NDArray[Any]]:
    """Attention over 16 tokens, the last four of which are masked."""
    mask = np.zeros((1, 1, 1, 16), np.float32)
    mask[..., 12:] = -10000
    q = _ramp(1, 2, 16, 16)
    return {"q": q, "k": np.ascontiguousarray(q[..., ::-1]), "v": np.ascontiguousarray(q[:, ::-1]), "mask": mask}


CALIBRATION_DATA: Mapping[str, Callable[[], dict[str, NDArray[Any]]]] = MappingProxyType(
    {
        "calibration/huge_half_activations": lambda: _half_images(60000),
        "calibration/symbolic_batch": lambda: {"image": _ramp(4, 16, 4, 4)},
        "calibration/ten_samples": lambda: {"x": _growing(10, 16, 4, 4)},
        "calibration/tiny_half_activations": lambda: _half_images(1e-5),
        "precision/activation_scale_underflows": lambda: {"x": _ramp(1, 16, 8, 8) * np.float32(1e-5)},
        "precision/empty_input_of_concat": lambda: {"x": _ramp(16, 16), "nothing": np.zeros((16, 0), np.float32)},
        "precision/huge_activations_beside_int8": lambda: {"x": _ramp(1, 16, 8, 8) * np.float32(4e6)},
        "precision/masked_by_lowest": lambda: _masked_row(np.bool_, 1),
        "precision/masked_by_product": lambda: _masked_row(np.int64, 1),
        "precision/narrowing_pair": _tiny_value,
        "precision/outlier_that_entropy_clips": _one_outlier,
        "refusals/batch_too_small": lambda: {"image": _ramp(4, 16, 4, 4)},
        "refusals/nan_sample": _with_nan,
        "refusals/nan_in_a_branch": lambda: _choices(-_ramp(2, 16, 8, 8), False, True),
        "subgraphs/captured_quantized_twice": lambda: _choices(
            np.concatenate([_ramp(1, 16, 8, 8) * np.float32(0.01), _ramp(1, 16, 8, 8)]), True, False
        ),
        "subgraphs/captured_skip": lambda: _choices(_ramp(2, 16, 8, 8), True, False),
        "subgraphs/captured_skip_swapped": lambda: _choices(_ramp(2, 16, 8, 8), True, False),
        "subgraphs/captured_trunk": lambda: _choices(_ramp(2, 16, 8, 8), True, False),
        "subgraphs/concat_in_a_branch": lambda: _choices(_ramp(2, 8, 8, 8), True, False),
        "subgraphs/equal_names_of_convs": lambda: _choices(_ramp(2, 16, 8, 8), True, False),
        "subgraphs/if_convs": lambda: _choices(_ramp(2, 16, 8, 8), True, False),
        "subgraphs/if_one_never_runs": lambda: _choices(_ramp(2, 16, 8, 8), True, True),
        "subgraphs/loop_without_rounds": lambda: {"x": _ramp(32, 16), "trips": np.zeros(1, np.int64)},
        "residual/mask_of_minus_10000": _scores_and_mask,
        "subgraphs/mask_in_a_branch": lambda: {**_masked_row(np.bool_), "choice": np.array([True])},
        "subgraphs/transposed_in_a_branch": lambda: _choices(_ramp(64, 16), True, False),
        "subgraphs/weight_of_two_branches": lambda: _choices(_ramp(64, 16), True, False),
        "weak/reshape_by_input": lambda: {"x": _ramp(1, 16, 8, 8), "shape": np.array([2, 16, 32], np.int64)},
        "weak/slice_up_to_an_input": lambda: {"x": _ramp(1, 16, 8, 8), "end": np.array([5], np.int64)},
    }
)
"""Case -> its calibration data."""


if __name__ == "__main__":
    sys.exit(main())
