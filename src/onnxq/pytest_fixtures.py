"""The fixtures of the pytest plugin: a model per builder, the quantizer, and the cases of a marked test.

Like the plugin itself, this module imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from onnxq_builders import FIXTURE_BUILDERS

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxq.corpus.case import Case
    from onnxq.pipeline import QuantizationResult
    from onnxq.quantizers import Quantizer


@pytest.fixture(scope="session")
def onnxq_quantize() -> Callable[..., QuantizationResult]:
    """`onnxq.quantize`: call it with a model and the options of quantize()."""
    import onnxq

    return onnxq.quantize


@pytest.fixture(scope="session")
def onnxq_quantizer(request: pytest.FixtureRequest) -> Quantizer:
    """The quantizer under test; the test runs once for each --onnxq-quantizer."""
    from onnxq.quantizers import DEFAULT, resolve

    return getattr(request, "param", None) or resolve(DEFAULT)


@pytest.fixture
def onnxq_case(request: pytest.FixtureRequest) -> Case:
    """The corpus case of a test that is marked with onnxq_cases: `load_model()`, `options`, `expect`, ..."""
    from onnxq.corpus.case import load_case
    from onnxq.errors import CorpusError

    if not hasattr(request, "param"):
        pytest.fail("onnxq_case needs the marker @pytest.mark.onnxq_cases(...) on the test", pytrace=False)
    try:
        return load_case(request.param)
    except CorpusError as error:
        pytest.fail(str(error), pytrace=False)


def _model_fixture(stem: str, builder: str) -> Callable[[], ModelProto]:
    def model() -> ModelProto:
        from onnxq_builders import build

        return build(builder)

    model.__doc__ = f'A new float model of the builder "{builder}", onnxq_builders.{stem}().'
    return pytest.fixture(name=f"{stem}_model")(model)


globals().update({f"{stem}_model": _model_fixture(stem, builder) for stem, builder in FIXTURE_BUILDERS.items()})
