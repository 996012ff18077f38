"""Forward and backward passes over a range of a net's layers, on shared arrays, with Caffe's side effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import LayerSpec, NetSpec
from caffe_import.tf_graph import tensorflow as tf
from caffe_import.tf_graph.builder import build_forward, fed_blobs, initial_layer_state, random_key
from caffe_import.tf_graph.data_layout import NHWC_TO_NCHW, Blob
from deepspark_ops.single_net.passes.shared_arrays import Floats, SharedArrays

Tensors = Mapping[str, tf.Tensor]


class LayerRange:
    """Computes a net. Each range of layers is traced once. One thread at a time."""

    def __init__(self, net: NetSpec, params: SharedArrays, blobs: SharedArrays) -> None:
        """Compute on these arrays; ``params`` may belong to several nets."""
        self._net = net
        self._params = params
        self._blobs = blobs
        self._forward = build_forward(net)
        self._fed = sorted(fed_blobs(net))
        self._positions = [position for position, layer in enumerate(net.layers) for _ in layer.tops]
        self._state: dict[str, Any] = dict(initial_layer_state(net))
        self._state_before = self._state
        self._seed = 0
        self._smaller: dict[str, Shape] = {}
        self._traced: dict[tuple[str, int, int], Any] = {}

    def forward(self, start: int, end: int, seed: int) -> dict[str, list[int]]:
        """Compute layers ``start`` to ``end``, both included: write their tops and changed statistics.

        Layers before ``start`` are not computed: their tops are read from the arrays.

        Returns:
            The shapes of blobs with fewer values than declared, as after a Filter layer.
        """
        self._state_before, self._seed = self._state, seed
        overrides = self._tops(self._net.layers[:start])
        function = self._function("forward", start, end, lambda: self._trace_forward(start, end))
        blobs, moved, state = function(self._vector(), self._state, self._key(), self._data(self._fed), overrides)
        self._state = {**self._state, **state}
        for name, value in blobs.items():
            array = value.numpy()
            self._smaller.pop(name, None)
            if array.shape != self._blobs[f"data/{name}"].shape:
                self._smaller[name] = array.shape
            self._present(f"data/{name}")[...] = array
        for entry in self._net.params.entries:
            if entry.name in moved:
                self._params["data"][entry.offset : entry.stop] = moved[entry.name].numpy().reshape(-1)
        return {name: list(shape) for name, shape in self._smaller.items() if name in blobs}

    def backward(self, start: int | None, end: int) -> None:
        """Compute gradients from layer ``start`` down to ``end``, both included.

        Initial gradients are the diffs of the start layer's tops; with ``start`` None the diffs of the net's outputs
        and losses. The pass writes diffs of bottoms, and adds to diffs of parameters. The forward pass is computed
        again, with the random numbers of the last forward pass.
        """
        last = len(self._net.layers) - 1 if start is None else start
        targets = self._targets(start)
        function = self._function("backward", -1 if start is None else start, end, lambda: self._trace_backward(start))
        diffs = {name: tf.constant(self._present(f"diff/{name}")) for name in targets}
        arguments = self._vector(), self._state_before, self._key(), self._data(self._fed), diffs
        of_blobs, of_params = function(*arguments)
        computed = [layer for layer in self._net.layers[end : last + 1] if layer.needs_backward]
        bottoms = {bottom for layer in computed for bottom in layer.bottoms} - set(targets)
        for name in bottoms & set(of_blobs):
            diff = self._present(f"diff/{name}")
            diff[...] = of_blobs[name].numpy().reshape(diff.shape)
        owners = {
            self._net.params.uses[layer.name, at] for layer in computed for at in range(len(layer.definition.blobs))
        }
        for position in owners:
            entry = self._net.params.entries[position]
            if entry.name in of_params:
                self._params["diff"][entry.offset : entry.stop] += of_params[entry.name].numpy().reshape(-1)

    def _function(self, kind: str, start: int, end: int, make: Any) -> Any:
        key = (kind, start, end if kind == "forward" else 0)
        if key not in self._traced:
            self._traced[key] = tf.function(make(), autograph=False)
        return self._traced[key]

    def _present(self, name: str) -> Floats:
        """Return an array in the present shape of its blob."""
        shape = self._smaller.get(name.partition("/")[2])
        array = self._blobs[name]
        return array if shape is None else array.reshape(-1)[: prod(shape)].reshape(shape)

    def _vector(self) -> tf.Tensor:
        return tf.constant(self._params["data"])

    def _key(self) -> tf.Tensor:
        return tf.constant([random_key(self._seed), 0], tf.int32)

    def _data(self, names: Sequence[str]) -> dict[str, tf.Tensor]:
        return {name: tf.constant(self._present(f"data/{name}")) for name in names}

    def _tops(self, layers: Sequence[LayerSpec]) -> dict[str, tf.Tensor]:
        return self._data(sorted({top for layer in layers for top in layer.tops if f"data/{top}" in self._blobs}))

    def _targets(self, start: int | None) -> list[str]:
        if start is not None:
            return sorted(set(self._net.layers[start].tops))
        losses = [
            top
            for layer in self._net.layers
            for top, weight in zip(layer.tops, layer.loss_weights, strict=True)
            if weight != 0
        ]
        return [name for name in sorted({*self._net.outputs, *losses}) if f"diff/{name}" in self._blobs]

    def _trace_forward(self, start: int, end: int) -> Any:
        def traced(vector: tf.Tensor, state: Tensors, seed: tf.Tensor, fed: Tensors, overrides: Tensors) -> Any:
            tap = _Tap(self._positions, end=end, start=start, overrides=overrides)
            result = self._forward.on_entries(self._forward.entries(vector), state, seed, fed, tap)
            names = {layer.name for layer in self._net.layers[start : end + 1]}
            entries = self._net.params.entries
            moved = {
                entries[at].name: value for at, value in result.param_updates.items() if entries[at].layer in names
            }
            state_after = {name: value for name, value in result.state.items() if name.rpartition("/")[0] in names}
            written = {
                name: blob.as_dtype(tf.float32).caffe
                for name, blob in tap.last.items()
                if f"data/{name}" in self._blobs and tap.is_computed[name]
            }
            return written, moved, state_after

        return traced

    def _trace_backward(self, start: int | None) -> Any:
        last = len(self._net.layers) - 1 if start is None else start

        def traced(vector: tf.Tensor, state: Tensors, seed: tf.Tensor, fed: Tensors, diffs: Tensors) -> Any:
            tap = _Tap(self._positions, end=last, start=0, overrides={})
            entries = self._forward.entries(vector)
            self._forward.on_entries(entries, state, seed, fed, tap)
            tops = [tap.last[name].as_dtype(tf.float32).caffe for name in diffs]
            weights = [tf.reshape(diff, tf.shape(top)) for diff, top in zip(diffs.values(), tops, strict=True)]
            produced = {name: blob for name, blob in tap.first.items() if f"diff/{name}" in self._blobs}
            sources = [*(blob.values for blob in produced.values()), *entries]
            gradients = tf.gradients(tops, sources, weights) if tops else [None] * len(sources)
            of_blobs = {
                name: _in_caffe_order(gradient, produced[name])
                for name, gradient in zip(produced, gradients, strict=False)
                if gradient is not None
            }
            owners = zip(self._net.params.entries, gradients[len(produced) :], strict=True)
            of_params = {
                entry.name: tf.convert_to_tensor(gradient) for entry, gradient in owners if gradient is not None
            }
            return of_blobs, of_params

        return traced


class _Tap:
    """Intercepts every top: replaces the tops of layers before the range, and stores the other tops.

    Attributes:
        first: Blob -> value of its producer.
        last: Blob -> value after the range's last layer.
        is_computed: Blob -> whether a layer of the range computed the last value.
    """

    def __init__(self, positions: Sequence[int], *, start: int, end: int, overrides: Tensors) -> None:
        self._positions = iter(positions)
        self._start = start
        self._end = end
        self._overrides = overrides
        self.first: dict[str, Blob] = {}
        self.last: dict[str, Blob] = {}
        self.is_computed: dict[str, bool] = {}

    def __call__(self, name: str, blob: Blob) -> Blob:
        position = next(self._positions)
        if position < self._start and name in self._overrides:
            blob = Blob.from_caffe(self._overrides[name])
        tapped = blob.wrap(tf.identity(blob.values))
        self.first.setdefault(name, tapped)
        if position <= self._end:
            self.last[name] = tapped
            self.is_computed[name] = position >= self._start
        return tapped


def _in_caffe_order(gradient: Any, blob: Blob) -> tf.Tensor:
    tensor = tf.cast(tf.convert_to_tensor(gradient), tf.float32)
    return tf.transpose(tensor, NHWC_TO_NCHW) if blob.is_channels_last and tensor.shape.rank == 4 else tensor
