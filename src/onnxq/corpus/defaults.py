"""Numbers that the command line tells in its help, apart from what uses them, so that the help comes at once."""

from __future__ import annotations

DEFAULT_ABOVE = 1024
"""Weights with more elements than this are stripped, unless told otherwise."""

LEAST_ABOVE = 16
"""Shorter tensors are parameters of operators, such as the scales of a Resize: to change them changes shapes."""
