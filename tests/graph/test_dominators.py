from __future__ import annotations

import networkx as nx
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxq.graph import ABSENT, ROOT, GraphIndex, build_dominators, build_index
from onnxq.tensor_types import GraphTypes

# One entry a node: how many tensors back each of its inputs lies; beyond the oldest is a constant.
dags = st.lists(st.lists(st.integers(1, 12), max_size=4), min_size=1, max_size=30)
START = "root"


def index_of(dag: list[list[int]], inputs: int = 2) -> GraphIndex:
    tensors = [f"x{n}" for n in range(inputs)]
    nodes = []
    for number, backs in enumerate(dag):
        read = [tensors[-back] if back <= len(tensors) else "constant" for back in backs] or ["constant"]
        nodes.append(helper.make_node("Sum", read, [f"t{number}"]))
        tensors.append(f"t{number}")
    values = [helper.make_tensor_value_info(f"x{n}", TensorProto.FLOAT, [2]) for n in range(inputs)]
    constant = helper.make_tensor("constant", TensorProto.FLOAT, [2], [1.0, 2.0])
    outputs = [helper.make_tensor_value_info(tensors[-1], TensorProto.FLOAT, [2])]
    graph = helper.make_graph(nodes, "g", values, outputs, [constant])
    return build_index(helper.make_model(graph), GraphTypes())


def as_networkx(index: GraphIndex) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_node(START)
    for node in range(len(index.nodes)):
        producers = {index.producers[t] for t in index.data_inputs(node)} or {ABSENT}
        graph.add_edges_from((START if p == ABSENT else p, node) for p in producers)
    return graph


@settings(deadline=None)
@given(dags)
def test_immediate_dominators_are_those_of_networkx(dag: list[list[int]]) -> None:
    index = index_of(dag)
    expected = nx.immediate_dominators(as_networkx(index), START)
    found = build_dominators(index).immediate
    assert {n: START if d == ROOT else d for n, d in enumerate(found)} == {n: expected[n] for n in range(len(found))}


@settings(deadline=None)
@given(dags)
def test_level_is_the_longest_path_from_the_root(dag: list[list[int]]) -> None:
    index = index_of(dag)
    graph = as_networkx(index)
    longest = {START: 0}
    for node in nx.topological_sort(graph):
        longest[node] = max((longest[p] + 1 for p in graph.predecessors(node)), default=0)
    assert build_dominators(index).level == [longest[n] for n in range(len(index.nodes))]


def test_skips_across_a_long_chain_finish_quickly() -> None:
    index = index_of([[1], *([1, 3] for _ in range(20_000))], inputs=1)
    assert build_dominators(index).level[-1] == 20_001


def test_a_body_is_dominated_within_itself_only() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[2] x, bool c) => (float[2] y) {
            r = Relu(x)
            y = If(c) <then_branch = t () => (float[2] a) { p = Neg(r) q = Abs(p) a = Add(p, q) },
                       else_branch = e () => (float[2] b) { b = Neg(r) }>
        }"""
    )
    index = build_index(model, GraphTypes())
    names = [node.op_type for node in index.nodes]
    assert names == ["Relu", "If", "Neg", "Abs", "Add", "Neg"]
    assert build_dominators(index).immediate == [ROOT, ROOT, ROOT, 2, 2, ROOT]
