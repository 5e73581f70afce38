"""What the tensors of a float model hold: feeds for running it, ranges of its activations, values of its constants."""

from onnxq.calibration.asymmetric import asymmetric_constant, asymmetric_parameters
from onnxq.calibration.bias import bias_parameters, scale_for_bias
from onnxq.calibration.calibrators import METHODS, Calibrator
from onnxq.calibration.collect import collect, collect_max
from onnxq.calibration.constants import evaluate_constants
from onnxq.calibration.data import CalibrationData, Feeds, make_feeds
from onnxq.calibration.extract import extract
from onnxq.calibration.given import GivenRanges, pick_ranges, ranges_text, read_ranges
from onnxq.calibration.inputs import parse_shapes
from onnxq.calibration.passes import Setup
from onnxq.calibration.ranges import Range, Ranges
from onnxq.calibration.runnable import why_unrunnable
from onnxq.calibration.scales import activation_scale, scale_vanishes, weight_scales
from onnxq.calibration.segments import MemoryBound
from onnxq.calibration.statistics import Statistics, TensorStatistics, merge_statistics

__all__ = [
    "CalibrationData",
    "Feeds",
    "make_feeds",
    "parse_shapes",
    "Range",
    "Ranges",
    "METHODS",
    "Calibrator",
    "Statistics",
    "TensorStatistics",
    "merge_statistics",
    "GivenRanges",
    "pick_ranges",
    "ranges_text",
    "read_ranges",
    "Setup",
    "MemoryBound",
    "collect",
    "collect_max",
    "activation_scale",
    "asymmetric_constant",
    "asymmetric_parameters",
    "bias_parameters",
    "scale_for_bias",
    "scale_vanishes",
    "weight_scales",
    "evaluate_constants",
    "extract",
    "why_unrunnable",
]
