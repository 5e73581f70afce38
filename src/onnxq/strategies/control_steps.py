"""Steps with bodies, and steps that go through integers: If, Loop, Scan; indices, sizes, a side input."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from onnxq.strategies.drawing import Drawing, Tensor, declaration
from onnxq.strategies.fitting import as_matrix, mean
from onnxq.strategies.linear_steps import gemm
from onnxq.strategies.pointwise_steps import activation

_BOOL, _INT64 = TensorProto.BOOL, TensorProto.INT64


def choice(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """If: both branches capture x; one has a product with a weight of its own, or of the graph around it."""
    x = as_matrix(d, x)
    shared = d.weight(x.shape[1], 16, scale=x.shape[1] ** -0.5, is_shared=True) if form & 1 else ""
    above = d.apply_many("Greater", [mean(d, x), d.number((-100.0, 100.0)[form >> 1 & 1])], [((), _BOOL)])[0]
    branches = {}
    for name in ("then_branch", "else_branch"):
        body = d.body()
        weight = shared or body.weight(x.shape[1], 16, scale=x.shape[1] ** -0.5)
        product = body.apply("MatMul", [x, weight], (x.shape[0], 16))
        result = activation(body, product, product, form) if name == "then_branch" else product
        branches[name] = body.graph([result], name)
    return d.apply("If", [above], (x.shape[0], 16), **branches)


def loop(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """Loop: a product and a Tanh, two or three times, on a tensor that it carries."""
    x = as_matrix(d, x)
    width = x.shape[1]
    body = d.body()
    turn, keep, state = (
        Tensor(body.fresh(name), shape, elem_type)
        for name, shape, elem_type in (("turn", (), _INT64), ("keep", (), _BOOL), ("state", x.shape, d.elem_type))
    )
    body.inputs += [declaration(tensor) for tensor in (turn, keep, state)]
    product = body.apply("MatMul", [state, body.weight(width, width, scale=width**-0.5)], x.shape)
    result = body.apply("Tanh", [product], x.shape)
    again = body.apply_many("Identity", [keep], [((), _BOOL)])[0]
    count, yes = d.constant(np.array(2 + form % 2)), d.constant(np.array(True))
    return d.apply("Loop", [count, yes, x], x.shape, body=body.graph([again, result], "body"))


def indices(d: Drawing, x: Tensor, y: Tensor, form: int) -> Tensor:
    """What goes through integers: TopK, ArgMax, a gathered row by a constant or by the side input, a computed size."""
    x = as_matrix(d, x)
    rows, width = x.shape
    match form % 5:
        case 0:
            k = d.constant(np.array([min(3, width)]))
            best, places = d.apply_many(
                "TopK", [x, k], [((rows, min(3, width)), d.elem_type), ((rows, min(3, width)), _INT64)]
            )
            numbers = d.apply("Cast", [places], best.shape, to=d.elem_type)
            scaled = d.apply("Mul", [numbers, d.number(1.0 / width)], best.shape)
            return d.apply("Add", [best, scaled], best.shape)
        case 1:
            place = d.apply_many("ArgMax", [x], [((rows, 1), _INT64)], axis=1)[0]
            return d.apply("Cast", [place], (rows, 1), to=d.elem_type)
        case 2:
            return d.apply("Gather", [x, d.constant(np.array([0, rows - 1]))], (2, width), axis=0)
        case 3 if d.side is not None and rows > 1:
            return d.apply("Gather", [x, d.side], (*d.side.shape, width), axis=0)
        case _:
            size = d.apply_many("Size", [x], [((), _INT64)])[0]
            number = d.apply("Cast", [size], (), to=d.elem_type)
            return d.apply("Div", [x, number], x.shape) if math.prod(x.shape) else gemm(d, x, y, form)
