"""TensorFlow's errors for exhausted memory, with the layer."""

from __future__ import annotations

import re
from typing import Final

import tensorflow as tf

from caffe_import.net.net_spec import NetSpec
from caffe_import.tf_graph.builder import scope_of

OUT_OF_MEMORY: Final = (tf.errors.ResourceExhaustedError, MemoryError)
"""What is raised. On the CPU oneDNN's kernels do not notice and end the process with a segmentation fault."""
_NODE: Final = re.compile(r"\{\{node ([^}]+)\}\}|Detected at node '?([^\s']+)")
_ALLOCATION_FAILURE: Final = re.compile(r"OOM when allocating[^\n]*|[^\n]*[Oo]ut of memory[^\n]*")


def exhausted_layer(error: BaseException, net: NetSpec) -> str | None:
    """Return the layer whose operation found no memory; None where the error names none of ``net``."""
    scopes = {scope_of(layer): layer.name for layer in net.layers}
    for node_match in _NODE.finditer(str(error)):
        # A layer's name may hold slashes, and its operations stand below the scopes of gradients and loops.
        node = f"/{node_match[1] or node_match[2]}/"
        inside = [scope for scope in scopes if f"/{scope}/" in node or f"/{scope}_grad/" in node]
        if inside:
            return scopes[max(inside, key=len)]
    return None


def wanted_memory(error: BaseException) -> str:
    """Return the sentence that says what could not be had."""
    memory_match = _ALLOCATION_FAILURE.search(str(error))
    return memory_match[0].strip() if memory_match else type(error).__name__
