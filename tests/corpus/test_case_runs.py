from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import ModelProto, helper

import faulty_quantizers as faulty
from onnxq.corpus.case import Case, load_case
from onnxq.corpus.checks import CHECKS, run_check
from onnxq.corpus.discover import builtin_corpus
from onnxq.corpus.run import run_case
from onnxq.errors import CorpusError, UnsupportedError
from onnxq.invariants import INVARIANTS
from onnxq.quantizers import OnnxqQuantizer, Policy
from onnxq.quantizers.peers import onnxruntime_arguments

HEAD = 'schema = 1\ntitle = "a title"\nsource = "made up"\n'

Make = Callable[..., Case]


class Fake:
    """A quantizer that does what a test wants."""

    name, version = "fake", "1.0"

    def __init__(self, work: Callable[[ModelProto], ModelProto], policy: Policy = "tensorrt") -> None:
        self._work = work
        self.policy: Policy = policy

    def quantize(self, model: ModelProto, calibration_data: object, options: Mapping[str, Any]) -> ModelProto:
        return self._work(model)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(
        expect: str = "", builder: str = "residual.convtranspose_conv", args: str = "", quantize: str = ""
    ) -> Case:
        file = tmp_path / "case.toml"
        model = f'[model]\nbuilder = "{builder}"\nargs = {{ {args} }}\n'
        file.write_text(f"{HEAD}{model}[quantize]\n{quantize}\n[expect]\n{expect}\n")
        return load_case(file)

    return make


def problems(case: Case, quantizer: Any = None) -> dict[str, list[str]]:
    """The checks that find something."""
    quantizer = quantizer or OnnxqQuantizer()
    run = run_case(case, quantizer)
    found = {name: run_check(name, run) for name in case.checks(quantizer.policy)}
    return {name: blocks for name, blocks in found.items() if blocks}


GOOD = """
quantized_add_inputs = { add = ["skip"] }
quantized_inputs = { conv1 = ["skip", "conv1_weight"], relu1 = [] }
outputs = { y = ["batch", 32, 16, 16] }
output_types = { y = "float" }
opset = 19
node_types = { conv1 = "float16" }
casts = 2
relations = ["swapped-operands"]
"""


def test_a_good_case(make: Make) -> None:
    case = make(GOOD)
    assert problems(case) == {}
    stated = ["quantized-add-inputs", "quantized-inputs", "outputs", "element-types", "casts", "opset", "relations"]
    assert case.checks("tensorrt") == ("quantizes", *INVARIANTS, *stated, "runs", "close-to-float")


def test_every_check_has_a_function(make: Make) -> None:
    assert {*make(GOOD).checks("tensorrt"), *make("raises = 'UsageError'").checks("tensorrt")} == set(CHECKS)


def test_what_a_case_states_is_compared_exactly(make: Make) -> None:
    found = problems(
        make(
            """
            quantized_add_inputs = { add = ["bn2"] }
            quantized_inputs = { conv2 = [] }
            outputs = { y = ["n", 32, 16, 16], z = [1] }
            output_types = { y = "float16" }
            opset = 13
            min_sqnr_db = { y = 200, z = 1 }
            """
        )
    )
    assert found["quantized-add-inputs"] == ['Add "add"\n    expected: "bn2" quantized\n    found:    "skip"']
    assert found["quantized-inputs"] == [
        'Conv "conv2"\n    expected: no input quantized\n    found:    "relu1" and "conv2_weight"'
    ]
    assert found["outputs"] == [
        'output "y"\n    expected: [n, 32, 16, 16]\n    found:    [batch, 32, 16, 16]',
        'output "z"\n    expected: [1]\n    found:    no such output',
        'output "y"\n    expected: float16\n    found:    float',
    ]
    assert found["opset"] == ["expected: opset 13\nfound:    opset 19"]
    assert found["close-to-float"][0].startswith('output "y"\n    expected: at least 200 dB')
    assert found["close-to-float"][1].endswith("no float output of that name")
    assert set(found) == {"quantized-add-inputs", "quantized-inputs", "outputs", "opset", "close-to-float"}


@pytest.mark.parametrize(
    ("name", "message"),
    [("nothing", 'the model has no node "nothing"'), ("conv1", '"conv1" is a Conv, no Add or Sum')],
)
def test_an_add_that_isnt_there(make: Make, name: str, message: str) -> None:
    found = problems(make(f'quantized_add_inputs = {{ {name} = ["skip"] }}'))
    assert list(found) == ["quantized-add-inputs"]
    assert message in found["quantized-add-inputs"][0]


def test_nodes_may_be_named_by_what_they_yield(make: Make) -> None:
    args = 'names = { add = "sum", conv1 = "" }'
    assert problems(make('quantized_add_inputs = { sum = ["skip"] }', args=args.replace(', conv1 = ""', ""))) == {}


def test_one_of_several_right_answers(make: Make) -> None:
    assert problems(make('quantized_add_inputs = { add = [["bn2", "skip"]] }')) == {}
    found = problems(make('quantized_add_inputs = { add = [["bn2", "x"]] }'))
    assert found["quantized-add-inputs"][0].splitlines()[1] == '    expected: one of "bn2"/"x" quantized'


def test_the_policy_decides_what_is_expected(make: Make) -> None:
    case = make('quantized_add_inputs = { add = ["skip"] }\n[[expect.policy]]\nwhen = "onnxruntime"\nruns = false')
    assert "runs" in case.checks("tensorrt")
    assert "runs" not in case.checks("onnxruntime")
    assert case.expect_of("tensorrt").quantized_add_inputs == {"add": ["skip"]}


def test_a_model_that_the_runtime_refuses(tmp_path: Path) -> None:
    folder = shutil.copytree(builtin_corpus() / "placement" / "custom_op_above", tmp_path / "case")
    case = load_case(folder / "case.toml")
    assert not {"runs", "close-to-float"} & set(case.checks("tensorrt"))
    assert problems(case) == {}
    case.path.write_text(case.path.read_text().replace("runs = false", ""))
    assert set(problems(load_case(case.path))) == {"runs", "close-to-float"}


REFUSED = "nodes_to_exclude = ['conv99']"


def test_a_refusal(make: Make) -> None:
    assert problems(make("raises = 'UsageError'\nmentions = ['conv99']", quantize=REFUSED)) == {}
    assert problems(make("raises = 'OnnxqError'", quantize=REFUSED)) == {}


@pytest.mark.parametrize(
    ("expect", "quantize", "message"),
    [
        ("raises = 'UsageError'", "", "it was quantized without an error"),
        ("raises = 'InvalidModelError'", REFUSED, "expected: InvalidModelError\nfound:    UsageError: "),
        ("raises = 'UsageError'\nmentions = ['conv98']", REFUSED, 'expected: a message that mentions "conv98"'),
    ],
)
def test_another_refusal_than_expected(make: Make, expect: str, quantize: str, message: str) -> None:
    found = problems(make(expect, quantize=quantize))
    assert list(found) == ["raises"]
    assert message in found["raises"][0]


def test_other_quantizers_refuse_in_their_own_words(make: Make) -> None:
    def refuse(model: ModelProto) -> ModelProto:
        raise ValueError("I don't like it")

    case = make("raises = 'InvalidModelError'\nmentions = ['conv99']")
    assert problems(case, Fake(refuse)) == {}
    assert list(problems(case, Fake(lambda model: model))) == ["raises"]


def test_a_failed_quantization_fails_every_check(make: Make) -> None:
    case = make(quantize=REFUSED)
    found = problems(case)
    assert list(found) == list(case.checks("tensorrt"))
    assert found["valid"][0].startswith("quantization failed: UsageError: ")
    assert "\n" not in found["valid"][0]


def test_a_crash_shows_where_and_a_refusal_doesnt(make: Make) -> None:
    def crash(model: ModelProto) -> ModelProto:
        raise KeyError("node_7")

    (shown,) = problems(make(), Fake(crash))["quantizes"]
    assert shown.startswith("KeyError: 'node_7'\n")
    assert "in crash" in shown
    assert "Traceback" not in problems(make(quantize=REFUSED))["quantizes"][0]


def test_a_quantizer_that_spoils_its_input_doesnt_spoil_the_comparison(make: Make) -> None:
    def rename_output(model: ModelProto) -> ModelProto:
        model.graph.node[-1].output[0] = model.graph.output[0].name = "other"
        return model

    found = problems(make(), Fake(rename_output))
    assert {"io-preserved", "close-to-float"} <= set(found)


def test_an_invalid_result_fails_where_it_is_wrong(make: Make) -> None:
    def unknown_op(model: ModelProto) -> ModelProto:
        model.graph.node[0].op_type = "Convolution"
        return model

    found = problems(make(), Fake(unknown_op))
    assert {"valid", "runs", "close-to-float", "operators-preserved"} <= set(found)
    assert "onnxruntime can't load the model with optimizations off" in found["runs"][0]


def test_noise_is_not_close(make: Make) -> None:
    def negate(model: ModelProto) -> ModelProto:
        model.graph.node[-1].output[0] = "y_before"
        model.graph.node.append(helper.make_node("Neg", ["y_before"], ["y"], name="neg"))
        return model

    assert problems(make(), Fake(negate))["close-to-float"][0].endswith("found:    -6.0 dB")


def test_calibration_data_and_shapes_of_the_case_are_used(make: Make, tmp_path: Path) -> None:
    import numpy as np

    np.savez(tmp_path / "data.npz", x=np.ones((4, 32, 8, 8), np.float32))
    case = make(quantize="calibration_data = 'data.npz'")
    run = run_case(case, OnnxqQuantizer())
    assert [{name: value.shape for name, value in feed.items()} for feed in run.feeds] == [{"x": (1, 32, 8, 8)}]
    assert (run.feeds[0]["x"] == 1).all()
    case = make(quantize="calibration_shapes = { x = [3, 32, 8, 8] }")
    assert run_case(case, OnnxqQuantizer()).feeds[0]["x"].shape == (3, 32, 8, 8)
    assert problems(case) == {}


def test_a_file_is_never_written(make: Make, tmp_path: Path) -> None:
    case = make()
    onnx.save_model(case.load_model(), tmp_path / "model.onnx")
    case.path.write_text(f'{HEAD}[model]\nfile = "model.onnx"\n')
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert problems(load_case(case.path)) == {}
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_what_a_case_says_of_the_placement_is_meant_for_its_own_policy(make: Make) -> None:
    stated = 'quantized_add_inputs = { add = ["skip"] }\nquantized_inputs = { conv1 = ["x"] }'
    case = make(stated)
    assert {"quantized-add-inputs", "quantized-inputs"} <= set(case.checks("tensorrt"))
    assert not {"quantized-add-inputs", "quantized-inputs"} & set(case.checks("onnxruntime"))
    named = make(
        f'{stated}\n[[expect.policy]]\nwhen = "onnxruntime"\nquantized_add_inputs = {{ add = ["skip", "bn2"] }}'
    )
    assert "quantized-add-inputs" in named.checks("onnxruntime")
    assert "quantized-inputs" not in named.checks("onnxruntime")
    own = make(stated, quantize='policy = "onnxruntime"')
    for policy in ("tensorrt", "onnxruntime"):
        assert own.judged_by(policy) == "onnxruntime"
        assert {"quantized-add-inputs", "quantized-inputs"} <= set(own.checks(policy))


def test_a_case_names_the_policy_that_it_is_quantized_and_judged_by(make: Make) -> None:
    case = make('quantized_add_inputs = { add = ["skip", "bn2"] }', quantize='policy = "onnxruntime"')
    assert problems(case) == {}
    assert run_case(case, OnnxqQuantizer()).policy == "onnxruntime"
    assert set(problems(make('quantized_add_inputs = { add = ["skip", "bn2"] }'))) == {"quantized-add-inputs"}
    tensorrt = make('quantized_add_inputs = { add = ["skip"] }', quantize='policy = "tensorrt"')
    assert run_case(tensorrt, OnnxqQuantizer("onnxruntime")).policy == "tensorrt"
    assert not run_check("quantized-add-inputs", run_case(tensorrt, OnnxqQuantizer("onnxruntime")))


def test_a_case_with_an_unknown_policy_isnt_read(make: Make) -> None:
    with pytest.raises(CorpusError, match=r'quantize\.policy: unknown policy "tensort"; did you mean "tensorrt"'):
        make("", quantize='policy = "tensort"')


def test_a_peer_isnt_asked_for_a_policy_that_isnt_its_own(make: Make) -> None:
    for options, own in (({"policy": "onnxruntime"}, True), ({"policy": "tensorrt"}, False)):
        if own:
            assert "policy" not in onnxruntime_arguments(ModelProto(), options)
        else:
            with pytest.raises(UnsupportedError, match="policy='tensorrt' can't be asked of it"):
                onnxruntime_arguments(ModelProto(), options)


class TestRelations:
    def test_hold_of_onnxq(self, make: Make) -> None:
        assert not problems(make('relations = ["swapped-operands", "renamed", "close-to-float"]'))

    def test_that_are_violated_are_shown(self, make: Make) -> None:
        case = make('relations = ["swapped-operands", "renamed"]')
        found = problems(case, faulty.quantizer(faulty.choosing(faulty.input_0_of_adds)))
        assert [block.splitlines()[0] for block in found["relations"]] == [
            'input "bn2" of Add "add"',
            'input "skip" of Add "add"',
        ]

    def test_look_at_the_samples_and_options_of_the_case(self, make: Make) -> None:
        seen: list[tuple[list[Any], Mapping[str, Any]]] = []

        def noting(model: ModelProto, feeds: Any, options: Mapping[str, Any]) -> ModelProto:
            seen.append((list(feeds), options))
            return faulty.with_pairs(model, ())

        case = make('relations = ["deterministic"]', quantize='nodes_to_exclude = ["conv1"]\nseed = 3')
        run = run_case(case, faulty.quantizer(noting))
        assert not run_check("relations", run)
        assert all(options["nodes_to_exclude"] == ["conv1"] for _, options in seen)
        assert len(seen) == 3
