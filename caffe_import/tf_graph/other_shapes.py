"""Graphs of a net for samples of other sizes: compiled at the first sample of a size, the latest sizes kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Generic, TypeVar

from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.reshaped_net import MOST_SHAPES, reshaped

_LOG = logging.getLogger(__name__)
_Graphs = TypeVar("_Graphs")


class OtherShapes(Generic[_Graphs]):
    """The compiled graphs of a net for single samples of other sizes than the net's own. Thread-safe.

    Caffe gives its blobs other shapes for each batch (``Net::Reshape``). A graph of TensorFlow has fixed shapes here,
    so each size has a graph of its own. Beyond ``MOST_SHAPES`` sizes the graph that was not used for longest is
    dropped, and compiled again at the next sample of its size.
    """

    def __init__(self, net: NetSpec, compile_net: Callable[[NetSpec], _Graphs]) -> None:
        """Compile nothing yet.

        Args:
            net: The net with its own shapes.
            compile_net: Compiles a net of other shapes.
        """
        self._net = net
        self._compile = compile_net
        self._lock = Lock()
        self._graphs: dict[tuple[Shape, ...], _Graphs] = {}
        self._is_full = False

    def of(self, shapes: Mapping[str, Shape]) -> _Graphs:
        """Return the compiled graphs for inputs of these shapes, blob -> full shape.

        Raises:
            NetError: The net cannot have such inputs.
        """
        key = tuple(shapes.values())
        with self._lock:
            graphs = self._graphs.pop(key, None)
            if graphs is None:
                self._make_room()
                graphs = self._compile(reshaped(self._net, shapes))
            self._graphs[key] = graphs  # the latest is the last
        return graphs

    def _make_room(self) -> None:
        if len(self._graphs) < MOST_SHAPES:
            return
        if not self._is_full:
            _LOG.warning(
                'net "%s": samples have more than %d sizes; the graphs of the latest %d sizes are kept, a graph of'
                " another size is compiled anew",
                self._net.name,
                MOST_SHAPES,
                MOST_SHAPES,
            )
            self._is_full = True
        del self._graphs[next(iter(self._graphs))]


def other_shapes_of(shapes: Mapping[str, Shape], fed: Mapping[str, Shape]) -> Mapping[str, Shape]:
    """Return the shapes of feeds with a single sample of another size; empty for the net's own shapes.

    Shapes that are neither are a mistake of the calling code: empty, too.

    Args:
        shapes: Blob -> full shape of a feed.
        fed: Blob -> the net's own shape, in the order of ``shapes``.
    """
    if shapes == fed or shapes.keys() != fed.keys():
        return {}
    is_single = all(len(fed[name]) == len(shape) and shape[:1] == (1,) for name, shape in shapes.items())
    return shapes if is_single else {}
