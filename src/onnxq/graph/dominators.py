"""Dominators of a graph's nodes: which node lies on every path from the graph's inputs to another one.

A vertex is a node; an edge is a tensor whose values are data (constants and shape computations are no paths: a compiler
knows them before it runs). Above all nodes without data inputs stands a virtual root.

In an acyclic graph a node's immediate dominator is the lowest common ancestor of its predecessors in the dominator
tree, so one pass in topological order gives the tree. Jump pointers (Myers, "An applicative random-access stack",
1983) keep each of these steps logarithmic, so a skip across the whole network costs no walk along it.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnxq.graph.index import ABSENT, GraphIndex

ROOT = ABSENT
"""The virtual root above a graph's inputs."""


@dataclass(frozen=True, slots=True)
class Dominators:
    """The dominator trees of all graphs of a model, and how deep each node lies.

    Attributes:
        immediate: Immediate dominator of each node, `ROOT` where only the virtual root dominates it.
        level: Length of the longest path from the root to each node. An ancestor always has a smaller level.
    """

    immediate: list[int]
    level: list[int]


def build_dominators(index: GraphIndex) -> Dominators:
    """Dominator trees of the main graph and of each body, in O(n log n)."""
    count = len(index.nodes)
    immediate, level = [ROOT] * count, [0] * count
    depth, jump = [0] * count, [ROOT] * count
    tree = _Tree(immediate, depth, jump)
    for node in range(count):
        predecessors = [index.local_producer(t, node) for t in index.data_inputs(node)]
        found = tree.common(predecessors)
        level[node] = 1 + max((level[p] for p in predecessors if p != ROOT), default=0)
        tree.attach(node, found)
    return Dominators(immediate, level)


class _Tree:
    """A growing tree with lowest-common-ancestor queries by jump pointers."""

    def __init__(self, parent: list[int], depth: list[int], jump: list[int]) -> None:
        self.parent, self.depth, self.jump = parent, depth, jump

    def attach(self, node: int, parent: int) -> None:
        self.parent[node] = parent
        if parent == ROOT:
            self.depth[node], self.jump[node] = 1, ROOT
            return
        self.depth[node] = self.depth[parent] + 1
        far = self.jump[parent]
        farther = ROOT if far == ROOT else self.jump[far]
        even = self._depth(parent) - self._depth(far) == self._depth(far) - self._depth(farther)
        self.jump[node] = farther if even else parent

    def common(self, nodes: list[int]) -> int:
        """Lowest common ancestor of several nodes; each counts as its own ancestor."""
        found = nodes[0] if nodes else ROOT
        for node in nodes[1:]:
            found = self._common(found, node)
        return found

    def _common(self, a: int, b: int) -> int:
        if a == ROOT or b == ROOT:
            return ROOT
        if self.depth[a] < self.depth[b]:
            a, b = b, a
        while a != ROOT and self.depth[a] > self.depth[b]:
            jumped = self.jump[a]
            a = jumped if self._depth(jumped) >= self.depth[b] else self.parent[a]
        while a != b:
            if self.jump[a] != self.jump[b]:
                a, b = self.jump[a], self.jump[b]
            else:
                a, b = self.parent[a], self.parent[b]
        return a

    def _depth(self, node: int) -> int:
        return 0 if node == ROOT else self.depth[node]
