"""Names for the graphs of a model and for the tensors in them: a body may use a name that its sibling uses too.

The main graph's path is ""; the path of a body is that of the graph around it, and the node and attribute that hold it:

    if1.then_branch                         a branch of node "if1"
    loop1.body/if2.else_branch              a branch of node "if2" in the body of node "loop1"

The key of a tensor is the path of the graph that reads or yields it, and its name: `if1.then_branch/t`; in the main
graph its name alone. A tensor that a body captures has a key in each graph that reads it, because what a branch sees of
it differs from what others see: the branch runs on some samples only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, NodeProto

from onnxq.errors import InvalidModelError
from onnxq.protos import bodies


@dataclass(frozen=True, slots=True)
class Site:
    """A graph of a model, and where it is.

    Attributes:
        paths: Paths of the graphs around it, outermost first, and its own.
        graphs: These graphs.
        root: Position in the main graph of the node that holds it, directly or not; None for the main graph.
    """

    paths: tuple[str, ...]
    graphs: tuple[GraphProto, ...]
    root: int | None = None

    @property
    def path(self) -> str:
        """Its path."""
        return self.paths[-1]

    @property
    def graph(self) -> GraphProto:
        """The graph itself."""
        return self.graphs[-1]


@dataclass(frozen=True, slots=True)
class Location:
    """Where a tensor is read or made.

    Attributes:
        site: The graph.
        name: Its name there.
    """

    site: Site
    name: str


def body_path(outer: str, owner: NodeProto, attribute: str) -> str:
    """Path of a body. A node without a name is called by its first output.

    Args:
        outer: Path of the graph that `owner` stands in.
        owner: The node that holds the body.
        attribute: Name of the attribute that holds it.
    """
    name = owner.name or next((output for output in owner.output if output), "")
    return tensor_key(outer, f"{name}.{attribute}")


def tensor_key(path: str, name: str) -> str:
    """Key of a tensor in the graph with the given path."""
    return f"{path}/{name}" if path else name


def sites(model: ModelProto) -> Iterator[Site]:
    """The main graph, then every body, outer ones first."""
    return _sites(Site(("",), (model.graph,)))


def _sites(site: Site) -> Iterator[Site]:
    yield site
    for position, node in enumerate(site.graph.node):
        for attribute, body in bodies(node):
            path, root = body_path(site.path, node, attribute), position if site.root is None else site.root
            yield from _sites(Site((*site.paths, path), (*site.graphs, body), root))


def locate(model: ModelProto, keys: Iterable[str]) -> Mapping[str, Location]:
    """Find tensors by their keys.

    Args:
        model: Any model.
        keys: Keys of tensors that the graph reads or yields.

    Returns:
        Key -> where it is, for all that there are.

    Raises:
        InvalidModelError: Two tensors have one key, since nodes that hold bodies are called alike.
    """
    wanted, found = set(keys), dict[str, Location]()
    for site in sites(model):
        for name in dict.fromkeys(_names(site.graph)):
            key = tensor_key(site.path, name)
            if key not in wanted:
                continue
            if key in found:
                raise InvalidModelError(
                    f'"{key}" stands for two tensors, one of graph "{found[key].site.graph.name}" and one of graph '
                    f'"{site.graph.name}": give the nodes that hold the graphs other names'
                )
            found[key] = Location(site, name)
    return found


def _names(graph: GraphProto) -> Iterator[str]:
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    for node in graph.node:
        yield from (name for name in (*node.input, *node.output) if name)
    yield from (value.name for value in graph.output)
