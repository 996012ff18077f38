"""Operations that give the same bits each time, and one clear message where TensorFlow has none.

TensorFlow's switch is process-wide. Kernels look at it when they run, random operations when they are traced: it must
be on before a net is traced, and stay on as long as the net runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import tensorflow as tf
from tensorflow.python.framework.config import disable_op_determinism, is_op_determinism_enabled

from caffe_import.errors import NetError
from caffe_import.net.net_spec import LayerSpec, NetSpec

_NODE = re.compile(r"\{\{node ([^}]+)\}\}")
_SCOPE = re.compile(r"\blayer(\d+)(?:_\d+)?/")
# Common to what kernels say ("A deterministic GPU implementation of ...", "Determinism is not yet supported in ...")
# and what random operations say ("... require a seed to be set when determinism is enabled").
_SPEAKS = "eterminis"


class _Switch:
    """Counts who needs determinism; what the process had before comes back after the last. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._was_on = False

    def enter(self) -> None:
        with self._lock:
            if self._users == 0:
                self._was_on = is_op_determinism_enabled()
                tf.config.experimental.enable_op_determinism()
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and not self._was_on:
                disable_op_determinism()


_SWITCH = _Switch()


@contextmanager
def deterministic_ops() -> Iterator[None]:
    """Have all operations of the process give the same bits each time; trace and run nets inside.

    Threads may be inside at the same time. What else the process computes meanwhile is deterministic too.
    """
    _SWITCH.enter()
    try:
        yield
    finally:
        _SWITCH.leave()


@contextmanager
def layer_scope(position: int, layer: LayerSpec) -> Iterator[None]:
    """Give the operations of a net's layer a name scope by which ``kernels_by_layer`` finds the layer again.

    Raises:
        NetError: The layer draws random numbers that nobody can draw again, and determinism is on.
    """
    try:
        with tf.name_scope(f"layer{position}"):
            yield
    except RuntimeError as error:
        if _SPEAKS not in str(error):
            raise
        raise _unseeded(layer) from error


@contextmanager
def kernels_by_layer(net: NetSpec) -> Iterator[None]:
    """Turn a kernel's refusal to compute ``net`` deterministically into an error that names the layer.

    Raises:
        NetError: The kernel has no deterministic form here, or draws random numbers without a seed.
    """
    try:
        yield
    except (tf.errors.UnimplementedError, tf.errors.InvalidArgumentError) as error:
        text = str(error)
        if _SPEAKS not in text:
            raise
        node = _NODE.search(text)
        scope = _SCOPE.search(node[1]) if node else None
        layer = net.layers[int(scope[1])] if scope else None
        if layer is not None and isinstance(error, tf.errors.InvalidArgumentError):
            raise _unseeded(layer) from error
        who = f'layer "{layer.name}" ({layer.type})' if layer else f'net "{net.name}"'
        operation = f"its operation {node[1]}" if node else "one of its operations"
        msg = (
            f"{who}: TensorFlow has no deterministic kernel for {operation} on this device, and a run that is recorded "
            "or replayed needs one; use another layer, compute on the CPU (CUDA_VISIBLE_DEVICES=-1), or train without "
            f"record. TensorFlow says: {error.message.splitlines()[0]}"
        )
        raise NetError(msg, layer=layer.name if layer else "") from error


def _unseeded(layer: LayerSpec) -> NetError:
    msg = (
        f'layer "{layer.name}" ({layer.type}): draws random numbers without a seed, and a run that is recorded or '
        "replayed must draw them again; use tf.random.stateless_* or train without record"
    )
    return NetError(msg, layer=layer.name)
