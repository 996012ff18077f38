"""Blobs with shared memory in Caffe, and the layers with values overwritten by an in-place layer.

Split, Reshape, Flatten, and Concat and Slice of a single blob copy nothing: bottom and tops share the data. An in-place
layer behind a shared top then overwrites the other blobs in the memory. Here every blob keeps its own values.

Source: BVLC Caffe, Blob::ShareData in split_layer.cpp, reshape_layer.cpp, flatten_layer.cpp, concat_layer.cpp and
slice_layer.cpp; the layers whose ``Backward_cpu`` reads the bottom's data, in src/caffe/layers/<type>_layer.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from caffe_import.net.layer_registry import find_layer_type
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.proto import caffe_pb2

When = Literal["forward", "backward", "output"]


@dataclass(frozen=True)
class Overwritten:
    """A layer reads other values from a blob than the blob's maker has written.

    Attributes:
        layer: The layer that reads them; for an output, the layer that makes it.
        blob: The blob, by its name in the file.
        by: The in-place layer that wrote over it.
        by_blob: The blob that it is in place on.
        when: Read in the forward pass, read in the backward pass alone, or an output of the net.
    """

    layer: str
    blob: str
    by: str
    by_blob: str
    when: When

    def __str__(self) -> str:
        """Return the note for the user."""
        effect = {
            "forward": f'layer "{self.layer}" reads blob "{self.blob}", but in Caffe it finds',
            "backward": f'layer "{self.layer}": for its gradient Caffe reads its bottom "{self.blob}" again and finds',
            "output": f'layer "{self.layer}" makes the output "{self.blob}", but in Caffe it ends up with',
        }[self.when]
        return (
            f'{effect} what layer "{self.by}" wrote in place over blob "{self.by_blob}": Split, Reshape and Flatten '
            f'share one memory. Here "{self.blob}" keeps its values, so the numbers differ from Caffe\'s; give layer '
            f'"{self.by}" a top of its own'
        )


def memory_of_blobs(net: NetSpec) -> dict[str, str]:
    """Return blob -> the first blob in the same memory."""
    memory: dict[str, str] = {}
    for layer in net.layers:
        for blob in layer.tops:
            memory.setdefault(blob, memory[layer.bottoms[0]] if layer.definition.shares_memory else blob)
    return memory


def overwritten_blobs(net: NetSpec) -> tuple[Overwritten, ...]:
    """Return where Caffe's sharing of memory gives other numbers than blobs with values of their own, in net order."""
    trace = _Trace(net)
    order = {layer.name: position for position, layer in enumerate(net.layers)}
    return tuple(sorted(dict.fromkeys(trace.findings()), key=lambda overwritten: order[overwritten.layer]))


@dataclass(frozen=True)
class _Read:
    """A layer read its bottom ``index``, whose own values include ``seen`` of the ``n_writes`` so far."""

    layer: LayerSpec
    index: int
    seen: int
    n_writes: int


class _Trace:
    """Follows the in-place writes to each memory, and counts the writes that each blob's values include."""

    def __init__(self, net: NetSpec) -> None:
        self._net = net
        self._memory = memory_of_blobs(net)
        self._writes: dict[str, list[tuple[str, str]]] = {memory: [] for memory in self._memory.values()}
        self._writes_seen: dict[str, int] = {}
        self._makers: dict[str, str] = {}
        self._in_file: dict[str, str] = {}
        self._reads: list[_Read] = []
        for layer in net.layers:
            self._run(layer)

    def _run(self, layer: LayerSpec) -> None:
        if not layer.definition.shares_memory:
            self._reads += [
                _Read(layer, index, self._writes_seen[blob], len(self._writes[self._memory[blob]]))
                for index, blob in enumerate(layer.bottoms)
            ]
        for index, blob in enumerate(layer.tops):
            writes = self._writes[self._memory[blob]]
            if blob not in layer.bottoms:
                self._writes_seen[blob] = self._writes_seen[layer.bottoms[0]] if layer.definition.shares_memory else 0
            elif _changes_values(layer):
                writes.append((layer.name, blob))
                self._writes_seen[blob] = len(writes)
            self._makers[blob] = layer.name
            if layer.type == "Split" and blob == f"{layer.name}_{index}":  # inserted, as wiring names them
                self._in_file[blob] = layer.bottoms[0]

    def findings(self) -> Iterator[Overwritten]:
        for read in self._reads:
            blob = read.layer.bottoms[read.index]
            if read.seen < read.n_writes:
                yield self._finding(read.layer.name, blob, read.seen, "forward")
            elif self._is_stale(blob, read.seen) and _gradient_reads(read.layer, read.index):
                yield self._finding(read.layer.name, blob, read.seen, "backward")
        for blob in self._net.outputs:
            if self._is_stale(blob, self._writes_seen[blob]):
                yield self._finding(self._makers[blob], blob, self._writes_seen[blob], "output")

    def _is_stale(self, blob: str, n_writes_seen: int) -> bool:
        return n_writes_seen < len(self._writes[self._memory[blob]])

    def _finding(self, layer: str, blob: str, n_writes_seen: int, when: When) -> Overwritten:
        by, by_blob = self._writes[self._memory[blob]][n_writes_seen]
        return Overwritten(layer, self._in_file.get(blob, blob), by, self._in_file.get(by_blob, by_blob), when)


def _changes_values(layer: LayerSpec) -> bool:
    return layer.type != "Dropout" or layer.message.phase == caffe_pb2.TRAIN


def _gradient_reads(layer: LayerSpec, index: int) -> bool:
    """Does Caffe's backward pass of the layer read the data of a bottom again?

    An in-place layer does too; ``tf_graph.passes.in_place`` computes what it then reads.
    """
    if layer.bottoms[index] in layer.tops or not layer.needs_backward:
        return False
    is_label = index in find_layer_type(layer.type, layer=layer.name).label_bottoms
    return is_label or layer.definition.gradient_reads_bottoms
