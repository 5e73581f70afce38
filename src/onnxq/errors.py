"""Every error a user can meet, one class for each kind of way out.

The message of an `OnnxqError` is one line for a person: it names the file, node or tensor, says what is wrong with
it, and what to do. The command line prints it as it stands.
"""


class OnnxqError(Exception):
    """Base of all errors that onnxq raises on purpose."""


class UsageError(OnnxqError, ValueError):
    """An argument or option is unknown, malformed, or matches nothing."""


class InvalidModelError(OnnxqError):
    """The input is no usable ONNX model: unreadable, contradictory, or already quantized."""


class UnsupportedError(OnnxqError):
    """The request is well formed, but onnxq does not do it."""


class CalibrationError(OnnxqError):
    """The calibration data don't fit the model, or the model doesn't run on them."""


class CorpusError(OnnxqError):
    """A corpus case can't be read: names the file, the key, and what is allowed there."""


class VerificationError(OnnxqError):
    """The quantized model failed onnxq's own final check: a bug of onnxq, never the user's fault."""


class PeerError(OnnxqError):
    """A quantizer that ran in a process of its own crashed, hung, or gave no usable model.

    Attributes:
        output: The last lines that it printed.
    """

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output
