from __future__ import annotations

import weakref

import numpy as np
import pytest


class Watched:
    """Makes feeds and sees to it that the one before is gone."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.last: weakref.ref[np.ndarray] | None = None

    def __iter__(self) -> Watched:
        return self

    def __next__(self) -> dict[str, np.ndarray]:
        assert self.last is None or self.last() is None, "the feed before is still held"
        if not self.left:
            raise StopIteration
        self.left -= 1
        array = np.ones((1, 3, 4), np.float32)
        self.last = weakref.ref(array)
        return {"x": array}


@pytest.fixture
def watched() -> type[Watched]:
    return Watched
