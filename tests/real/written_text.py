"""Text as pictures for the OCR models, drawn with letters of five by seven dots, and what the recognizer answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

DOTS = {
    "2": "01110 10001 00001 00110 01000 10000 11111",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "7": "11111 00001 00010 00100 01000 01000 01000",
    "A": "01110 10001 10001 11111 10001 10001 10001",
    "E": "11111 10000 10000 11110 10000 10000 11111",
    "H": "10001 10001 10001 11111 10001 10001 10001",
    "L": "10000 10000 10000 10000 10000 10000 11111",
    "N": "10001 11001 10101 10101 10011 10001 10001",
    "O": "01110 10001 10001 10001 10001 10001 01110",
    "R": "11110 10001 10001 11110 10100 10010 10001",
    "S": "01111 10000 10000 01110 00001 00001 11110",
    "T": "11111 00100 00100 00100 00100 00100 00100",
    "U": "10001 10001 10001 10001 10001 10001 01110",
    "X": "10001 10001 01010 00100 01010 10001 10001",
}
"""Letter -> its seven rows."""

LINE_HEIGHT = 48
WIDTH = 320
_PAPER, _INK = 0.9, 1.7
_BLUR = np.array([1, 2, 1]) / 4


def ink(text: str, size: int = 4) -> NDArray:
    """A line of text, [48, 320]: 1 where there is ink, with soft edges. `size` is that of a dot in pixels."""
    rows = ["0".join(DOTS[letter].split()[row] for letter in text) + "0" for row in range(7)]
    dots = np.array([[character == "1" for character in row] for row in rows], float)
    letters = np.kron(dots, np.ones((size, size)))
    line = np.zeros((LINE_HEIGHT, WIDTH))
    top = (LINE_HEIGHT - letters.shape[0]) // 2
    line[top : top + letters.shape[0], 12 : 12 + letters.shape[1]] = letters
    for axis in (0, 1, 0, 1):
        line = np.apply_along_axis(np.convolve, axis, line, _BLUR, "same")
    return line


def line_of_text(text: str, size: int = 4) -> dict[str, NDArray]:
    """As the recognizer takes a line: [1, 3, 48, 320], from -1 to 1."""
    image = (_PAPER - _INK * ink(text, size)).astype(np.float32)
    return {"x": np.tile(image, (1, 3, 1, 1))}


def page_of_text(lines: Sequence[tuple[str, int]]) -> dict[str, NDArray]:
    """As the detector takes a page: [1, 3, 192, 320]; each line is shifted right by some pixels."""
    page = np.full((192, WIDTH), _PAPER)
    for number, (text, shift) in enumerate(lines):
        top = 8 + 60 * number
        page[top : top + LINE_HEIGHT] -= _INK * np.roll(ink(text), shift, axis=1)
    normalized = ((page + 1) / 2 - 0.45) / 0.225
    return {"x": np.tile(normalized.astype(np.float32), (1, 3, 1, 1))}


def read(scores: NDArray, alphabet: Sequence[str]) -> str:
    """The text that the recognizer's scores [1, positions, characters] stand for: the best of each, repeats dropped."""
    best = scores[0].argmax(-1)
    first_of_run = np.flatnonzero(np.diff(best, prepend=-1))
    return "".join(alphabet[best[position]] for position in first_of_run).strip()
