"""Pieces of models that are hard to lower to half precision; each keeps a value's shape, [2, 16], and its size.

What a piece computes is well conditioned: in half precision it comes out within a few units of the last place, if
nothing overflows or vanishes on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from onnxq.strategies.ground_truth import Value
from onnxq.strategies.network import Network

ROWS, WIDTH = 2, 16
SHAPE = (ROWS, WIDTH)
"""Shape of every value between pieces."""

VARIANTS = 8
"""No piece has more forms than this."""

LOWEST = float(np.finfo(np.float32).min)

_FLOAT, _HALF, _DOUBLE = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE
_INT64, _BOOL = TensorProto.INT64, TensorProto.BOOL

Writer = Callable[[Network, Value, Value, int], Value]
"""Appends a piece: network, what it reads, the model's input, the variant -> what it makes."""


def _relu(net: Network, x: Value, _: Value, variant: int) -> Value:
    return _unary(net, ("Relu", "Tanh", "Celu", "Identity")[variant % 4], x)


def _matmul(net: Network, x: Value, _: Value, variant: int) -> Value:
    weight = net.parameter(net.normal((WIDTH, WIDTH), 0.25))
    if variant % 2:
        return net.apply("Gemm", [x, weight], SHAPE, macs=ROWS * WIDTH**2, weights=WIDTH**2)
    return net.apply("MatMul", [x, weight], SHAPE, macs=ROWS * WIDTH**2, weights=WIDTH**2)


def _shared(net: Network, x: Value, _: Value, variant: int) -> Value:
    """An initializer that is read in both precisions; Celu is never half."""
    weight = net.parameter(net.uniform((WIDTH,), -1, 1))
    kept = net.apply("Celu", [weight], (WIDTH,))
    if variant % 2:
        return net.combine("Add", [net.apply("Mul", [x, weight], SHAPE), kept])
    return net.combine("Sub", [net.combine("Add", [x, weight]), kept])


def _tiny(net: Network, x: Value, _: Value, variant: int) -> Value:
    """Factors that vanish, of either sign, among others, or alone and undone."""
    tiny = net.uniform((WIDTH,), 0.5, 1) * np.float32(1e-9)
    if variant % 2:
        tiny[1::2] *= -1
        tiny[0] = 1
        return net.apply("Mul", [x, net.parameter(tiny)], SHAPE)
    scaled = net.apply("Mul", [x, net.parameter(-tiny)], SHAPE)
    return net.apply("Div", [scaled, net.parameter(tiny)], SHAPE)


def _wide(net: Network, x: Value, _: Value, variant: int) -> Value:
    """A factor beyond the range of float16, of either sign, that is undone."""
    factor = np.float32(-(10**5) if variant % 2 else 10**5)
    large = net.apply("Mul", [x, _number(net, factor)], SHAPE)
    if variant // 2 % 2:
        large = net.apply("Transpose", [large], (WIDTH, ROWS), perm=(1, 0))
        large = net.apply("Transpose", [large], SHAPE, perm=(1, 0))
    return net.apply("Div", [large, _number(net, factor)], SHAPE)


def _cast(net: Network, x: Value, _: Value, variant: int) -> Value:
    """Chains of Casts, widening and narrowing; the last one goes back to float32."""
    chains = (
        (_FLOAT,),
        (_HALF, _FLOAT),
        (_DOUBLE, _FLOAT),
        (_HALF, _FLOAT, _HALF, _FLOAT),
        (_FLOAT, _HALF, _HALF, _FLOAT, _FLOAT),
        (_HALF, _DOUBLE, _FLOAT),
        (_FLOAT, _FLOAT),
        (_DOUBLE, _HALF, _FLOAT),
    )
    for to in chains[variant % len(chains)]:
        x = net.apply("Cast", [x], SHAPE, elem_type=to, to=to)
    # onnxruntime, inserting Casts of its own, loses one from float64 that a body captures.
    return _unary(net, "Identity", x)


def _epsilon(net: Network, x: Value, _: Value, variant: int) -> Value:
    """Division by a norm, with an epsilon that vanishes in half precision; the norm is zero or not."""
    epsilon = _number(net, 1e-12)
    if variant % 2:
        x = net.apply("Mul", [x, _number(net, 0)], SHAPE)
    match variant // 2 % 4:
        case 0:
            norm = net.combine("Add", [_unary(net, "Abs", x), epsilon])
        case 1:
            norm = net.apply("Max", [_unary(net, "Abs", x), epsilon], SHAPE)
        case 2:
            norm = net.apply("Clip", [_unary(net, "Abs", x), epsilon], SHAPE)
        case _:
            square = net.combine("Add", [net.apply("Mul", [x, x], SHAPE), epsilon])
            inverse = net.apply("Reciprocal", [_unary(net, "Sqrt", square)], SHAPE)
            return net.apply("Mul", [x, inverse], SHAPE)
    return net.apply("Div", [x, norm], SHAPE)


def _mask(net: Network, x: Value, given: Value, variant: int) -> Value:
    """Attention masks of the lowest float, one row masked throughout."""
    keep = net.apply("Greater", [given, net.setting(np.array([[0], [100]], np.float32))], SHAPE, elem_type=_BOOL)
    lowest = _number(net, LOWEST)
    match variant % 3:
        case 0:
            masked = net.apply("Where", [keep, x, lowest], SHAPE)
        case 1:
            bias = net.apply("Where", [keep, _number(net, 0), lowest], SHAPE)
            masked = net.add(x, bias)
        case _:
            drop = net.apply("Cast", [net.apply("Not", [keep], SHAPE, elem_type=_BOOL)], SHAPE, to=_FLOAT)
            masked = net.add(x, net.apply("Mul", [drop, lowest], SHAPE))
    return net.apply("Softmax", [masked], SHAPE, axis=-1)


def _fill(net: Network, x: Value, _: Value, variant: int) -> Value:
    """A ConstantOfShape that is read in one precision or in both."""
    shape = net.apply("Shape", [x], (2,), elem_type=_INT64)
    value = helper.make_tensor("", _FLOAT, [1], [0.5])
    filled = net.apply("ConstantOfShape", [shape], SHAPE, value=value)
    result = net.apply("Mul", [x, filled], SHAPE)
    return net.add(result, _unary(net, "Celu", filled)) if variant % 2 else result


def _empty(net: Network, x: Value, _: Value, variant: int) -> Value:
    empty = net.parameter(np.zeros((ROWS, 0), np.float32))
    operands: list[Value | str] = [x, empty] if variant % 2 else [empty, x]
    return net.apply("Concat", operands, SHAPE, axis=1)


def _resize(net: Network, x: Value, _: Value, variant: int) -> Value:
    """Twice the height and back, with constant, shared or computed scales, with and without an empty roi."""
    image = net.apply("Reshape", [x, net.setting(np.array([1, 1, ROWS, WIDTH]))], (1, 1, ROWS, WIDTH))
    double = np.array([1, 1, 2, 1], np.float32)
    scales: Value | str = net.setting(double)
    if variant % 3 == 1:
        image = net.apply("Mul", [image, net.setting(np.ones(1, np.float32))], image.shape)
        scales = net.apply("Identity", [scales], (4,))
    elif variant % 3 == 2:
        height = net.apply("Shape", [image], (4,), elem_type=_INT64)
        size = net.apply("Cast", [height], (4,), to=_FLOAT)
        scales = net.apply("Div", [net.apply("Mul", [size, net.setting(double)], (4,)), size], (4,))
    roi = net.setting(np.zeros(0, np.float32)) if variant // 3 % 2 else ""
    large = net.apply(
        "Resize",
        [image, roi, scales],
        (1, 1, 2 * ROWS, WIDTH),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    bounds = [net.setting(np.array([number])) for number in (0, 2 * ROWS, 2, 2)]
    small = net.apply("Slice", [large, *bounds[:2], bounds[2], bounds[3]], image.shape)
    return net.apply("Reshape", [small, net.setting(np.array(SHAPE))], SHAPE)


def _positions(net: Network, x: Value, _: Value, variant: int) -> Value:
    """Positions, small ones or beyond the range of float16, scaled down again."""
    last = 100_000 if variant % 2 else 10
    positions = net.setting(np.linspace(0, last, WIDTH).astype(np.int64))
    number = net.apply("Cast", [positions], (WIDTH,), to=_FLOAT)
    scaled = net.apply("Mul", [number, _number(net, 1 / last)], (WIDTH,))
    return net.combine("Add", [x, scaled])


def _sequence(net: Network, x: Value, _: Value, variant: int) -> Value:
    sequence = net.apply("SequenceConstruct", [x, _unary(net, "Neg", x)], ())
    return net.apply("SequenceAt", [sequence, net.setting(np.array(variant % 2))], SHAPE)


def _normalization(net: Network, x: Value, _: Value, variant: int) -> Value:
    scale, shift = (net.parameter(net.uniform((WIDTH,), low, high)) for low, high in ((0.5, 1.5), (-0.1, 0.1)))
    epsilon = 1e-12 if variant % 2 else 1e-5
    return net.apply("LayerNormalization", [x, scale, shift], SHAPE, axis=-1, epsilon=epsilon)


def _output_cast(net: Network, x: Value, _: Value, variant: int) -> Value:
    """A Cast that nothing reads, so that it is a graph output."""
    to = (_HALF, _DOUBLE, _FLOAT)[variant % 3]
    net.apply("Cast", [x], SHAPE, elem_type=to, to=to)
    return x


def _if(net: Network, x: Value, given: Value, variant: int) -> Value:
    """Two branches that capture the value and a weight; in the second form one holds an If itself."""
    weight = net.parameter(net.uniform((WIDTH,), 0.5, 1))
    greatest = net.apply("ReduceMax", [given], (), keepdims=0)
    condition = net.apply("Greater", [greatest, _number(net, 0)], (), elem_type=_BOOL)
    branch = _branch("then", NodeProto(op_type="Mul", input=[x.name, weight]))
    other = _branch("else", NodeProto(op_type="Add", input=[x.name, weight]))
    if variant % 2:
        inner = _branch("inner", NodeProto(op_type="Neg", input=[x.name]))
        node = helper.make_node("If", [condition.name], [], then_branch=branch, else_branch=inner)
        branch = _branch("outer", node)
    return net.apply("If", [condition], SHAPE, captures=[x], then_branch=branch, else_branch=other)


def _loop(net: Network, x: Value, given: Value, variant: int) -> Value:
    """Two rounds of state = state * 0.5 + captured, or of state + counter."""
    if variant % 2:
        step = [helper.make_node("Cast", ["round"], ["number"], to=_FLOAT)]
        step.append(NodeProto(op_type="Add", input=["state", "number"], output=["next"]))
    else:
        step = [helper.make_node("Constant", [], ["half"], value_float=0.5)]
        step.append(NodeProto(op_type="Mul", input=["state", "half"], output=["product"]))
        step.append(NodeProto(op_type="Add", input=["product", given.name], output=["next"]))
    body = GraphProto(
        name="rounds",
        node=[NodeProto(op_type="Identity", input=["go_on"], output=["goes_on"]), *step],
        input=[_value("round", _INT64, ()), _value("go_on", _BOOL, ()), _value("state", _FLOAT, SHAPE)],
        output=[_value("goes_on", _BOOL, ()), _value("next", _FLOAT, SHAPE)],
    )
    rounds, go_on = net.setting(np.array(2)), net.setting(np.array(True))
    return net.apply("Loop", [rounds, go_on, x], SHAPE, captures=[given], body=body)


def _branch(name: str, node: NodeProto) -> GraphProto:
    """A body of one unnamed node. Names in bodies have no number, so they hide none of the graphs around them."""
    node.output[:] = [f"{name}_result"]
    return GraphProto(name=name, node=[node], output=[_value(node.output[0], _FLOAT, SHAPE)])


def _value(name: str, elem_type: int, shape: tuple[int, ...]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, elem_type, shape)


def _unary(net: Network, op_type: str, x: Value) -> Value:
    return net.apply(op_type, [x], x.shape)


def _number(net: Network, value: float | np.float32) -> str:
    return net.parameter(np.array(value, np.float32))


WRITERS: Mapping[str, Writer] = MappingProxyType(
    {
        "relu": _relu,
        "matmul": _matmul,
        "shared": _shared,
        "tiny": _tiny,
        "wide": _wide,
        "cast": _cast,
        "epsilon": _epsilon,
        "mask": _mask,
        "fill": _fill,
        "empty": _empty,
        "resize": _resize,
        "positions": _positions,
        "sequence": _sequence,
        "normalization": _normalization,
        "output_cast": _output_cast,
        "if": _if,
        "loop": _loop,
    }
)
"""What writes each piece."""
