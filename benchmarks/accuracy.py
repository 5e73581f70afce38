"""Accuracy on the architectures of the builders, side by side with onnxruntime's quantizer.

    python benchmarks/accuracy.py                          every architecture
    python benchmarks/accuracy.py mobilenet.v2 vit.basic   some

Each architecture has random weights of trained networks' statistics (He-normal, batch normalization of means and
variances that aren't 0 and 1), once with BatchNormalization and once with it folded. All quantizers get the same 16
calibration samples, smooth noise such as images are, and make symmetric int8 of activations and weights, per channel.
Printed is the SQNR in dB over the outputs on 16 other samples, run as the operators' definition has it, the mean of
three draws of weights and samples; and whether onnxq's default is at least as good as the better of onnxruntime's
methods. Exit status 1 if it isn't somewhere.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import sys
from collections.abc import Iterator

import numpy as np
from onnx import ModelProto
from onnxruntime_policy import Feeds, by_onnxruntime, ratio, rewritten

import onnxq
from onnxq.numerics import run_model
from onnxq_builders import BUILDERS

SAMPLES = 16
SEEDS = range(3)
NOISE = 0.1
"""Difference in dB that three draws don't tell."""
NETWORKS = [name for name in BUILDERS if name.split(".")[0] not in ("residual", "weak")]
OWN = ("max", "entropy", "mse")
PEERS = ("MinMax", "Entropy")
SYMMETRIC = {"ActivationSymmetric": True, "WeightSymmetric": True}


def images(model: ModelProto, seed: int) -> Feeds:
    """Smooth noise: coarse fields of three sizes, blown up and added, each channel of mean 0 and deviation 1."""
    (value,) = (v for v in model.graph.input if v.name not in {t.name for t in model.graph.initializer})
    _, channels, height, width = (dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim)
    rng = np.random.default_rng(seed)

    def image() -> np.ndarray:
        field = np.zeros((channels, height, width))
        for cells in (2, 4, 8):
            coarse = rng.standard_normal((channels, cells, cells))
            field += np.kron(coarse, np.ones((-(-height // cells), -(-width // cells))))[:, :height, :width]
        field += 0.2 * rng.standard_normal(field.shape)
        field -= field.mean(axis=(1, 2), keepdims=True)
        field /= field.std(axis=(1, 2), keepdims=True)
        return np.asarray(field[None], np.float32)

    return [{value.name: image()} for _ in range(SAMPLES)]


def ratios(model: ModelProto, seed: int) -> Iterator[float]:
    """What each quantizer reaches, in the order of the columns."""
    samples, feeds = images(model, seed), images(model, seed + 100)
    reference = run_model(model, feeds)
    for method in OWN:
        made = onnxq.quantize(
            model, calibration_data=samples, calibration_method=method, high_precision_dtype="fp32"
        ).model
        yield ratio(reference, run_model(made, feeds))
    for method in PEERS:
        with contextlib.redirect_stdout(io.StringIO()):  # it tells what it does
            peer = by_onnxruntime(model, samples, activation_type="QInt8", method=method, extra_options=SYMMETRIC)
        yield ratio(reference, run_model(peer, feeds))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK", help=", ".join(NETWORKS))
    networks = parser.parse_args().networks
    logging.disable(logging.CRITICAL)
    columns = [*(f"onnxq {m}" for m in OWN), *(f"onnxruntime {m}" for m in PEERS)]
    print("| network | normalization |", " | ".join(columns), "| at least as good |")
    print("|---" * (len(columns) + 3) + "|")
    worse = 0
    for name in networks:
        built = [BUILDERS[name](seed=seed) for seed in SEEDS]
        for state, models in (("kept", built), ("folded", [rewritten(model, "BASIC") for model in built])):
            draws = [list(ratios(model, seed)) for seed, model in zip(SEEDS, models, strict=True)]
            found = [sum(column) / len(draws) for column in zip(*draws, strict=True)]
            good = found[OWN.index("entropy")] > max(found[len(OWN) :]) - NOISE
            worse += not good
            numbers = " | ".join(f"{r:.1f}" for r in found)
            print(f"| {name} | {state} | {numbers} | {'yes' if good else '**no**'} |", flush=True)
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
