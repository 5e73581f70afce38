"""Models that nobody here wrote, where they are installed, what they eat, and what must come of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Feed = dict[str, NDArray]
"""Input name -> array."""


@dataclass(frozen=True)
class RealModel:
    """One file of an installed package, and what is expected of its quantization.

    Attributes:
        package: Name on the package index.
        file: Path inside the package.
        feed: Makes one sample.
        quantized: Op type -> number of nodes with a quantized input.
        residual: Number of residual Adds: each has exactly one quantized input. Other Adds have none.
        min_sqnr: Output name -> least signal to quantization noise ratio in dB, against the float model on samples that
            the calibration didn't see, with the runtime's optimizations off.
        optimized: Whether the runtime can also load it with optimizations on, in float.
        warnings: Words that some warning holds; nothing else is warned about.
    """

    package: str
    file: str
    feed: Callable[[np.random.Generator], Feed]
    quantized: Mapping[str, int]
    residual: int = 0
    min_sqnr: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def path(self) -> Path | None:
        """The file; None if the package isn't installed, or doesn't hold it."""
        try:
            found = [f for f in files(self.package) or () if f.as_posix() == self.file]
        except PackageNotFoundError:
            return None
        return Path(str(found[0].locate())) if found else None


def photo(name: str, size: int = 224) -> Callable[[np.random.Generator], Feed]:
    """An image as a network for photos sees one: soft shapes and some noise, of mean 0 and deviation 1."""

    def feed(rng: np.random.Generator) -> Feed:
        coarse = rng.standard_normal((1, 3, 8, 8))
        image = np.kron(coarse, np.ones((1, 1, size // 8, size // 8))) + 0.1 * rng.standard_normal((1, 3, size, size))
        return {name: image.astype(np.float32)}

    return feed


def text_line(height: int, width: int) -> Callable[[np.random.Generator], Feed]:
    """Dark strokes on light paper, as a text recognizer sees a line of text, scaled to [-1, 1]."""

    def feed(rng: np.random.Generator) -> Feed:
        image = np.full((height, width), 0.9)
        for left in range(4, width - 12, 14):
            for _ in range(3):  # a letter is three bars
                top, side = rng.integers(height // 4, height // 2), left + rng.integers(0, 8)
                tall = rng.integers(0, 2)
                image[top : top + (height // 3 if tall else 3), side : side + (3 if tall else 9)] = -0.8
        image += 0.03 * rng.standard_normal(image.shape)
        return {"x": np.clip(np.broadcast_to(image, (1, 3, height, width)), -1, 1).astype(np.float32)}

    return feed


def speech(rng: np.random.Generator, length: int) -> NDArray:
    """Sound at 16 kHz: a tone of the voice with overtones, in syllables, over noise."""
    time = np.arange(length) / 16_000
    pitch = rng.uniform(90, 220)
    voice = sum(np.sin(2 * np.pi * pitch * k * time + rng.uniform(0, 6)) / k for k in range(1, 12))
    syllables = 0.5 + 0.5 * np.sin(2 * np.pi * rng.uniform(3, 6) * time + rng.uniform(0, 6))
    return (0.2 * voice * syllables + 0.01 * rng.standard_normal(length)).astype(np.float32)


def one_chunk(rng: np.random.Generator) -> Feed:
    """What the voice detector takes: 64 samples of context with 512 new ones, a fresh state, and the rate."""
    state = np.zeros((2, 1, 128), np.float32)
    return {"input": speech(rng, 576)[None], "state": state, "sr": np.array(16_000, np.int64)}


def one_chunk_without_rate(rng: np.random.Generator) -> Feed:
    feed = one_chunk(rng)
    del feed["sr"]
    return feed


def one_sequence(rng: np.random.Generator) -> Feed:
    sound = speech(rng, 64 + 512 * 8)
    chunks = np.stack([sound[start : start + 576] for start in range(0, 512 * 8, 512)])
    zeros = np.zeros((1, 1, 128), np.float32)
    return {"input": chunks, "h": zeros, "c": zeros}


def file_bytes(rng: np.random.Generator) -> Feed:
    """The beginning and the end of a text file as byte values; 256 stands for padding."""
    words = [b"import", b"return", b"def", b"x", b"=", b"(", b")", b"\n", b"    ", b"# note"]
    text = b" ".join(words[i] for i in rng.integers(0, len(words), 600))[:1024]
    row = np.frombuffer(text.ljust(1024, b"\n"), np.uint8).astype(np.int32)
    return {"bytes": np.concatenate([row, row[::-1]])[None]}
