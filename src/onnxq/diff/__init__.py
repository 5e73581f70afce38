"""What two placements have in common: of two models by any tool, or as they are stored."""

from onnxq.diff.compare import Difference, Kind, PlacementDiff, compare
from onnxq.diff.read import read_views
from onnxq.diff.view import OUTPUT, EdgeKey, EdgeView, PlacementView, Scaling

__all__ = [
    "OUTPUT",
    "Difference",
    "EdgeKey",
    "EdgeView",
    "Kind",
    "PlacementDiff",
    "PlacementView",
    "Scaling",
    "compare",
    "read_views",
]
