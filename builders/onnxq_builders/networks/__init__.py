"""Faithful small versions of real networks: the right structure with few blocks, channels in multiples of 16.

Common to all: the input is "x", float32 [batch, 3, size, size]; the stem reads its three channels as the real network
does. `batch` is a number or a symbol, `batch_norm=False` folds each BatchNormalization into its convolution (read
"..._conv" for "..._bn" then), `swap` exchanges the operands of the residual Adds, `seed` gives the weights. A docstring
lists the Adds; "skip" and "both float" mean what they do in `onnxq_builders.residual`.
"""
