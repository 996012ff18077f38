"""Parameters that come to an ONNX graph after its conversion: inputs become the file's arrays.

What is computed from parameters alone, such as a kernel in another axis order, is computed here once, by onnx's own
reference implementation, and not at every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

Arrays = Mapping[str, npt.NDArray[Any]]


def put_constants(model: onnx.ModelProto, values: Arrays) -> None:
    """Replace inputs of the graph by arrays, in place.

    Args:
        model: Its graph has an input for every name.
        values: Name of an input -> what it always is.
    """
    graph = model.graph
    opsets = {one.domain: one.version for one in model.opset_import}
    known = {array.name: numpy_helper.to_array(array) for array in graph.initializer}
    kept, known = _folded(list(graph.node), {**known, **values}, opsets)
    read = {name for node in kept for name in node.input} | {value.name for value in graph.output}
    read |= {name for node in kept for name in _read_inside(node)}
    inputs = [value for value in graph.input if value.name not in values]
    for field, entries in (
        (graph.node, kept),
        (graph.input, inputs),
        (graph.initializer, [_array(known[name], name) for name in known if name in read]),
    ):
        del field[:]
        field.extend(entries)


def _folded(
    nodes: list[onnx.NodeProto], known: Arrays, opsets: Mapping[str, int]
) -> tuple[list[onnx.NodeProto], dict[str, npt.NDArray[Any]]]:
    """Return the nodes that depend on a request, in their order, and every array that does not, by name."""
    found = dict(known)
    kept = []
    for node in nodes:
        if node.input and all(name in found for name in node.input if name) and not _has_graph(node):
            given = {name: np.asarray(found[name]) for name in node.input if name}
            made = ReferenceEvaluator(node, opsets=dict(opsets)).run(None, given)
            found.update(zip(node.output, made, strict=True))
        else:
            kept.append(node)
    return kept, found


def _has_graph(node: onnx.NodeProto) -> bool:
    return any(attribute.type == onnx.AttributeProto.GRAPH for attribute in node.attribute)


def _read_inside(node: onnx.NodeProto) -> set[str]:
    """Return the names that graphs inside a node (of Loop, If, Scan) read; some may be of their own."""
    found: set[str] = set()
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                found |= set(inner.input) | _read_inside(inner)
    return found


def _array(values: npt.NDArray[Any], name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(values), name)
