"""Vision Transformer."""

from __future__ import annotations

from onnx import ModelProto

from onnxq_builders._blocks import begin, end
from onnxq_builders._graph import Graph
from onnxq_builders._layers import activate, add, conv, gemm, layer_norm, linear, reshape, transpose


def vit(
    *,
    dim: int = 64,
    heads: int = 4,
    blocks: int = 2,
    patch: int = 8,
    gelu: str = "gelu",
    swap: bool = False,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """A Vision Transformer with pre-norm blocks. The output "y" is [batch, classes].

        x -> patch_embed (Conv) -> tokens, class token in front -> + position -> blocks -> LayerNorm -> class token -> y

        block: -+-> norm1 -> q, k, v -> attention -> proj -> attn_add -+-> norm2 -> fc1 -> Gelu -> fc2 -> mlp_add
                +--------------------------------------------^         +---------------------------------^

    Adds "block<n>_attn_add" and "block<n>_mlp_add": both float, since a MatMul is no backbone. All other Adds add a
    constant (biases, "position").

    Args:
        dim: Length of a token, divisible by `heads`.
        heads: Number of attention heads.
        blocks: Number of blocks.
        patch: Height and width of a patch, a divisor of `size`.
        gelu: "gelu" (by Erf) or "gelu_op" (needs opset 20).
        swap: Exchange the operands of the residual Adds.
        size: Height and width of the input.
        classes: Number of classes.
        batch: First dim, a number or a symbol.
        opset: Version of the default operator set, 17 at least.
        seed: Seed of the weights.
    """
    g, x = begin("vit", 3, size, batch, opset, seed)
    y = conv(g, x, dim, "patch_embed", kernel=patch, stride=patch, bias=True, gain=1.0)
    y = transpose(g, reshape(g, y, (0, dim, -1), "patches"), (0, 2, 1), "tokens")
    y = g.node("Concat", [_class_token(g, x, dim), y], "all_tokens", axis=1)
    position = g.constant("position_embedding", g.normal((1, (size // patch) ** 2 + 1, dim), 0.2))
    y = g.node("Add", [y, position], "position")
    for scope in (f"block{number}" for number in range(1, blocks + 1)):
        branch = _attention(g, layer_norm(g, y, dim, f"{scope}_norm1"), scope, dim, heads)
        y = add(g, branch, y, f"{scope}_attn_add", swap=swap)
        branch = linear(g, layer_norm(g, y, dim, f"{scope}_norm2"), dim, dim * 4, f"{scope}_fc1")
        branch = linear(g, activate(g, branch, gelu, scope), dim * 4, dim, f"{scope}_fc2")
        y = add(g, branch, y, f"{scope}_mlp_add", swap=swap)
    y = layer_norm(g, y, dim, "head_norm")
    y = g.node("Gather", [y, g.constant("class_index", 0)], "class_feature", axis=1)
    return end(g, gemm(g, y, dim, classes, "head_gemm"))


def _class_token(g: Graph, x: str, dim: int) -> str:
    """The learned class token, repeated for each image: [N, 1, dim]."""
    count = g.node("Gather", [g.node("Shape", [x], "image_shape"), g.constant("batch_axis", [0])], "batch_size")
    shape = g.node("Concat", [count, g.constant("token_shape", [1, dim])], "class_token_shape", axis=0)
    return g.node("Expand", [g.constant("class_embedding", g.normal((1, 1, dim), 0.5)), shape], "class_token")


def _attention(g: Graph, x: str, scope: str, dim: int, heads: int) -> str:
    """softmax(Q K^T / sqrt(dim / heads)) V, then the output projection: [N, T, dim] -> [N, T, dim]."""
    q, k, v = (
        transpose(
            g,
            reshape(g, linear(g, x, dim, dim, f"{scope}_{part}"), (0, 0, heads, dim // heads), f"{scope}_{part}_heads"),
            perm,
            f"{scope}_{part}_transposed",
        )
        for part, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3)))
    )
    scores = g.node("MatMul", [q, k], f"{scope}_scores")
    scaled = g.node("Mul", [scores, g.constant(f"{scope}_factor", float((dim // heads) ** -0.5))], f"{scope}_scaled")
    mixed = g.node("MatMul", [g.node("Softmax", [scaled], f"{scope}_softmax", axis=-1), v], f"{scope}_context")
    y = reshape(g, transpose(g, mixed, (0, 2, 1, 3), f"{scope}_context_transposed"), (0, 0, dim), f"{scope}_merged")
    return linear(g, y, dim, dim, f"{scope}_proj")
