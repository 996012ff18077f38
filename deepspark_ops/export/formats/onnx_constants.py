"""Parameters that are added to an ONNX graph after the conversion: graph inputs become the file's arrays.

Nodes that depend on parameters alone, such as a kernel in another axis order, are computed here once, by onnx's
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
    """Replace inputs of the graph by the arrays of the same names, in place."""
    graph = model.graph
    opsets = {opset.domain: opset.version for opset in model.opset_import}
    constants = {array.name: numpy_helper.to_array(array) for array in graph.initializer}
    request_nodes, constants = _folded(list(graph.node), {**constants, **values}, opsets)
    read = {name for node in request_nodes for name in node.input} | {value.name for value in graph.output}
    read |= {name for node in request_nodes for name in _read_inside(node)}
    inputs = [value for value in graph.input if value.name not in values]
    for field, entries in (
        (graph.node, request_nodes),
        (graph.input, inputs),
        (graph.initializer, [_array(constants[name], name) for name in constants if name in read]),
    ):
        del field[:]
        field.extend(entries)


def _folded(
    nodes: list[onnx.NodeProto], arrays: Arrays, opsets: Mapping[str, int]
) -> tuple[list[onnx.NodeProto], dict[str, npt.NDArray[Any]]]:
    """Return the nodes that depend on a request, in order, and every other array by name."""
    constants = dict(arrays)
    request_nodes = []
    for node in nodes:
        if node.input and all(name in constants for name in node.input if name) and not _has_graph(node):
            node_inputs = {name: np.asarray(constants[name]) for name in node.input if name}
            node_outputs = ReferenceEvaluator(node, opsets=dict(opsets)).run(None, node_inputs)
            constants.update(zip(node.output, node_outputs, strict=True))
        else:
            request_nodes.append(node)
    return request_nodes, constants


def _has_graph(node: onnx.NodeProto) -> bool:
    return any(attribute.type == onnx.AttributeProto.GRAPH for attribute in node.attribute)


def _read_inside(node: onnx.NodeProto) -> set[str]:
    """Return the names that graphs inside a node (Loop, If, Scan) read; the names may include local values."""
    names: set[str] = set()
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                names |= set(inner.input) | _read_inside(inner)
    return names


def _array(values: npt.NDArray[Any], name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(values), name)
