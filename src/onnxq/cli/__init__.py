"""The command `onnxq`."""

from onnxq.cli.main import main

__all__ = ["main"]
