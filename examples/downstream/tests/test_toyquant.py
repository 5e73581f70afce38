"""What pytest-onnxq offers for tests of a quantizer: fixtures, cases, assertions, strategies."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from toyquant import quantize

from onnxq.strategies import LabelledModel, residual_models
from onnxq.testing import assert_io_preserved, assert_no_violations, assert_runs, assert_valid


def test_a_model_of_a_fixture(identity_block_model):
    quantized = quantize(identity_block_model)
    assert_valid(quantized)
    assert_runs(quantized)
    assert_io_preserved(identity_block_model, quantized)


@pytest.mark.xfail(strict=True, reason="toyquant knows nothing of residual Adds")
def test_a_known_weakness(convtranspose_conv_residual_model):
    quantized = quantize(convtranspose_conv_residual_model)
    assert_no_violations(convtranspose_conv_residual_model, quantized, only=["residual-skip-only"])


@pytest.mark.onnxq_cases("own/*")
def test_an_own_check_of_each_case(onnxq_case, onnxq_quantizer):
    model = onnxq_case.load_model()
    quantized = onnxq_quantizer.quantize(model, onnxq_case.calibration_data, onnxq_case.options)
    assert len(quantized.graph.node) > len(model.graph.node)


@settings(max_examples=20, deadline=None)
@given(residual_models())
def test_any_network(labelled: LabelledModel):
    quantized = quantize(labelled.model)
    assert_no_violations(labelled.model, quantized, only=["valid", "io-preserved", "scales-positive", "weight-axes"])
