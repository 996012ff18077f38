"""``ds.Net``: a net to look into, with pycaffe's habits. TensorFlow computes the net in a separate process."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from caffe_import.files.caffemodel import copy_weights, read_caffemodel, write_caffemodel
from caffe_import.files.prototxt import read_net
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.layer_registry import Phase
from caffe_import.net.net_spec import LayerSpec, NetSpec, build_net_spec
from caffe_import.net.phases import filter_layers
from caffe_import.proto import caffe_pb2
from deepspark_ops.api.mistakes import mistakes_as_config_errors
from deepspark_ops.api.pycaffe.blob import Blob, NetMemory
from deepspark_ops.api.pycaffe.data_feed import DataFeed
from deepspark_ops.api.pycaffe.defaults import DEFAULTS, Devices
from deepspark_ops.api.results.card import Card, CardTable, HasCard
from deepspark_ops.api.results.result_folder import StrPath, absolute_local_path
from deepspark_ops.config.shared_options.named_files import AS_GIVEN
from deepspark_ops.errors import ConfigError
from deepspark_ops.processes.named_files import limit_named_files
from deepspark_ops.single_net.passes.net_process import NetProcess, OpenNet
from deepspark_ops.single_net.passes.shared_arrays import SharedArrays, blob_shapes, param_shapes

TRAIN: Final = 0
TEST: Final = 1
_PHASES: Final[Mapping[object, Phase]] = {TRAIN: "TRAIN", TEST: "TEST", "TRAIN": "TRAIN", "TEST": "TEST"}
_COMPUTED_IN_GRAPH: Final = ("Input", "DummyData")
Floats = npt.NDArray[np.float32]


class Net(HasCard):
    """A net with arrays to read and write: ``net.blobs["data"].data[...] = image``, ``net.forward()``.

    The net's process starts at the first pass and ends with this object, or by ``close()``.

    Example:
        .. code-block:: python

            net = ds.Net("deploy.prototxt", "weights.caffemodel", ds.TEST)
            net.blobs["data"].reshape(1, 3, 227, 227)
            net.forward()["prob"].argmax()

    Attributes:
        blobs: Name -> blob, in the order of the layers.
        params: Layer -> its parameter blobs.
    """

    def __init__(
        self,
        prototxt: StrPath,
        weights: StrPath | int | Literal["TRAIN", "TEST"] | None = None,
        phase: int | Literal["TRAIN", "TEST"] | None = None,
        *,
        level: int = 0,
        stages: Collection[str] = (),
        devices: Devices | None = None,
    ) -> None:
        """Read a net and perhaps weights; ``Net(prototxt, phase)`` fills parameters as the net says.

        Args:
            prototxt: The net's file.
            weights: ``.caffemodel`` or ``.caffemodel.h5``; copied by layer name.
            phase: ``ds.TEST`` or ``ds.TRAIN``, also as ``"TEST"``, ``"TRAIN"``; default TEST.
            level: Of the net's state.
            stages: Of the net's state.
            devices: Where it is computed: ``auto``, ``cpu`` or ``gpu``; default: as ``set_mode_gpu`` said last.

        Raises:
            ConfigError: A file is missing or damaged, or the net cannot be built.
        """
        if weights in (TRAIN, TEST, "TRAIN", "TEST") and phase is None:
            weights, phase = None, weights
        if phase is None:
            phase = TEST
        if phase not in _PHASES:
            msg = f"phase={phase!r}: allowed: ds.TEST (1), ds.TRAIN (0), 'TEST', 'TRAIN'"
            raise ConfigError(msg)
        process = NetProcess(DEFAULTS.chosen_devices(devices))
        path = absolute_local_path(prototxt)
        with mistakes_as_config_errors():
            limit_named_files(AS_GIVEN, (path.parent,))
            message = filter_layers(read_net(path), phase=_PHASES[phase], level=level, stages=stages)
            self._set_up(message, _PHASES[phase], process)
        if weights is not None:
            self.copy_from(weights)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        """Return the net's name and phase, its inputs and outputs."""
        return f"Net({self._message.name!r}, {self._phase}, inputs={self.inputs}, outputs={self.outputs})"

    @classmethod
    def of_message(
        cls, message: caffe_pb2.NetParameter, phase: Phase, process: NetProcess, params_of: Net | None = None
    ) -> Net:
        """Return a net of a message whose layers are filtered; ``params_of`` shares the parameters.

        Raises:
            CaffeImportError: The net cannot be built.
        """
        net = cls.__new__(cls)
        net._set_up(message, phase, process, params_of)
        return net

    def _set_up(
        self, message: caffe_pb2.NetParameter, phase: Phase, process: NetProcess, params_of: Net | None = None
    ) -> None:
        self._message = message
        self._phase = phase
        self._process = process
        self._number: int | None = None
        self._feed = DataFeed(phase)
        self._seed = DEFAULTS.next_seed()
        self._spec = self._built()
        self._source: Net | None = None
        self._params = self._filled() if params_of is None else self._shared_or_filled(params_of)
        self._make_blobs(None)

    def _built(self) -> NetSpec:
        return build_net_spec(self._message, phase=self._phase, sample_shapes=self._feed.sample_shapes)

    def _shared_or_filled(self, other: Net) -> SharedArrays:
        """Return the other net's parameters; where this net has others, its own, which follow the other net's."""
        if _same_params(other._spec, self._spec):
            return other._params
        self._source = other
        return self._filled()

    def _filled(self) -> SharedArrays:
        params = SharedArrays(param_shapes(self._spec.params.n_params))
        params["data"][...] = initial_vector(self._spec, self._seed)
        return params

    def _make_blobs(self, old_memory: NetMemory | None) -> None:
        """Make arrays for the net's present shapes; contents of blobs whose shape is as before are copied."""
        spec = self._spec
        arrays = SharedArrays(blob_shapes(spec.blob_shapes))
        for name in blob_shapes(spec.blob_shapes):
            if old_memory is None or name not in old_memory.blobs:
                continue
            if old_memory.blobs[name].shape == arrays[name].shape:
                arrays[name][...] = old_memory.blobs[name]
        for layer in spec.layers:
            for top, weight in zip(layer.tops, layer.loss_weights, strict=True):
                if weight != 0:
                    arrays[f"diff/{top}"][...] = weight
        memory = self._memory = NetMemory(spec, self._params, arrays)
        self.blobs = {name: Blob(memory.blob_array, memory.reshape, name) for name in spec.blob_shapes}
        self.params = {
            layer.name: [
                Blob(memory.param_array, None, f"{layer.name}/{at}") for at in range(len(layer.definition.blobs))
            ]
            for layer in spec.layers
            if layer.definition.blobs
        }
        if self._number is not None:
            self._process.close(self._number)
        self._number = self._process.open(OpenNet(self._computed_message(), self._phase, self._params, arrays))
        self._feed.bind(spec)

    def _computed_message(self) -> caffe_pb2.NetParameter:
        """Return the net with an Input layer in the place of each data layer of this process."""
        message = caffe_pb2.NetParameter()
        message.CopyFrom(self._message)
        fed = {
            layer.name: layer
            for layer in self._spec.layers
            if layer.definition.is_data and layer.type not in _COMPUTED_IN_GRAPH
        }
        for layer in message.layer:
            if layer.name in fed:
                spec = fed[layer.name]
                layer.CopyFrom(caffe_pb2.LayerParameter(name=layer.name, type="Input", top=layer.top))
                for shape in spec.definition.top_shapes:
                    layer.input_param.shape.add(dim=shape)
        return message

    @property
    def spec(self) -> NetSpec:
        """The net as it was built, with its present shapes."""
        return self._spec

    @property
    def vectors(self) -> SharedArrays:
        """All parameters, ``data`` and ``diff``, each one vector in Caffe's order."""
        return self._params

    @property
    def inputs(self) -> list[str]:
        """Names of the blobs of Input layers."""
        return [top for layer in self._spec.layers if layer.type == "Input" for top in layer.tops]

    @property
    def outputs(self) -> list[str]:
        """Names of the blobs without a reading layer."""
        return list(self._spec.outputs)

    @property
    def layer_names(self) -> list[str]:
        """Names of the layers, with Caffe's additional layers for blobs with several readers."""
        return [layer.name for layer in self._spec.layers]

    @property
    def top_names(self) -> dict[str, list[str]]:
        """Layer -> its tops."""
        return {layer.name: list(layer.tops) for layer in self._spec.layers}

    @property
    def bottom_names(self) -> dict[str, list[str]]:
        """Layer -> its bottoms."""
        return {layer.name: list(layer.bottoms) for layer in self._spec.layers}

    def forward(
        self, blobs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **inputs: Any
    ) -> dict[str, Floats]:
        """Compute the net, or the layers from ``start`` to ``end``, and return the outputs.

        Args:
            blobs: Further blobs to return.
            start: First layer; the tops of those before it are taken as they are.
            end: Last layer, whose tops are returned.
            inputs: Input blob -> its content.

        Returns:
            Name -> the blob's array itself, which the next pass overwrites.

        Raises:
            ConfigError: No such layer or blob, or inputs that do not fit.
        """
        self.reshape()
        first = 0 if start is None else self._position(start, "start")
        last = len(self._spec.layers) - 1 if end is None else self._position(end, "end")
        names = [*(self.outputs if end is None else self._spec.layers[last].tops), *(blobs or ())]
        for name in names:
            self._require_blob(name)
        self._take_inputs(inputs)
        self._follow_source()
        self._seed += 1
        computed = self._spec.layers[first : last + 1]
        with mistakes_as_config_errors():
            assert self._number is not None, "opened by _make_blobs"
            self._feed.fill([layer.name for layer in computed], self._memory.blob_array, self._seed)
            smaller = self._process.forward(self._number, first, last, self._seed)
        tops = {top for layer in computed for top in layer.tops}
        smaller_before = {name: shape for name, shape in self._memory.smaller.items() if name not in tops}
        self._memory.smaller = {**smaller_before, **smaller}
        return {name: self.blobs[name].data for name in dict.fromkeys(names)}

    def backward(
        self, diffs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **tops: Any
    ) -> dict[str, Floats]:
        """Compute gradients from the outputs, or from layer ``start``, down to layer ``end``.

        Gradients of parameters are added to ``net.params[...].diff``, as in Caffe.

        Args:
            diffs: Further blobs whose gradients are returned.
            start: The layer to begin with; its tops' diffs are the gradients there.
            end: The last layer, whose bottoms' diffs are returned.
            tops: Output blob -> the gradient there.

        Returns:
            Name -> the diff's array itself: of the net's inputs, or of the bottoms of ``end``.

        Raises:
            ConfigError: No such layer or blob, or gradients that do not fit.
        """
        self.reshape()
        first = None if start is None else self._position(start, "start")
        last = 0 if end is None else self._position(end, "end")
        names = [*(self.inputs if end is None else self._spec.layers[last].bottoms), *(diffs or ())]
        for name in names:
            self._require_blob(name)
        if tops and set(tops) - set(self.outputs):
            msg = f"{', '.join(sorted(set(tops) - set(self.outputs)))}: no output; allowed: {', '.join(self.outputs)}"
            raise ConfigError(msg)
        for name, diff in tops.items():
            _assign(self.blobs[name].diff, diff, name)
        with mistakes_as_config_errors():
            assert self._number is not None, "opened by _make_blobs"
            self._process.backward(self._number, first, last)
        return {name: self.blobs[name].diff for name in dict.fromkeys(names)}

    def forward_all(self, blobs: Sequence[str] | None = None, **inputs: Any) -> dict[str, Floats]:
        """Compute any number of samples, in batches of the net's size; return copies of the outputs of all."""
        if set(inputs) != set(self.inputs) or not inputs:
            msg = f"inputs {', '.join(inputs) or '(none)'}: the net has {', '.join(self.inputs)}"
            raise ConfigError(msg)
        arrays = {name: np.asarray(values, np.float32) for name, values in inputs.items()}
        counts = {len(array) for array in arrays.values()}
        if len(counts) != 1:
            msg = f"inputs of {' and '.join(map(str, sorted(counts)))} samples: give the same number of each"
            raise ConfigError(msg)
        (count,), batch = counts, self.blobs[self.inputs[0]].shape[0]
        parts: dict[str, list[Floats]] = {}
        for begin in range(0, count, batch):
            n_rows = min(batch, count - begin)
            chunk: dict[str, Any] = {
                name: _padded(array[begin : begin + n_rows], batch) for name, array in arrays.items()
            }
            for name, value in self.forward(blobs, None, None, **chunk).items():
                parts.setdefault(name, []).append(value[:n_rows].copy())
        return {name: np.concatenate(values) for name, values in parts.items()}

    def reshape(self) -> None:
        """Give the blobs the shapes that follow from the inputs'. Arrays taken before are no longer the net's.

        Raises:
            ConfigError: The net cannot have these shapes: all blobs keep the shapes that they had.
        """
        reshaped, self._memory.reshaped = self._memory.reshaped, {}
        if not reshaped:
            return
        old_message = caffe_pb2.NetParameter()
        old_message.CopyFrom(self._message)
        for layer in self._message.layer:
            if layer.type == "Input":
                shapes = [
                    reshaped[top]["data"].shape if top in reshaped else self._spec.blob_shapes[top] for top in layer.top
                ]
                del layer.input_param.shape[:]
                for shape in shapes:
                    layer.input_param.shape.add(dim=shape)
        try:
            with mistakes_as_config_errors():
                spec = self._built()
            self._require_same_params(spec)
        except ConfigError:
            self._message = old_message
            raise
        self._spec = spec
        self._make_blobs(self._memory)
        for name, arrays in reshaped.items():
            self.blobs[name].data[...] = arrays["data"]

    def _require_same_params(self, spec: NetSpec) -> None:
        pairs = zip(spec.params.entries, self._spec.params.entries, strict=True)
        changed = [new.layer for new, old in pairs if new.shape != old.shape]
        if changed:
            msg = f'reshape: layer "{changed[0]}" would need parameters of another shape'
            raise ConfigError(msg)

    def save(self, path: StrPath) -> None:
        """Write the parameters as ``.caffemodel``, or as HDF5 if the name ends in ``.h5``.

        Raises:
            ConfigError: The file cannot be written.
        """
        with mistakes_as_config_errors():
            write_caffemodel(absolute_local_path(path), self._spec, self._params["data"])

    def copy_from(self, weights: StrPath) -> None:
        """Copy parameters from a weights file by layer name.

        Raises:
            ConfigError: The file is missing or damaged, or its shapes are others.
        """
        path = absolute_local_path(weights)
        with mistakes_as_config_errors():
            copy_weights(self._spec, self._params["data"], read_caffemodel(path), where=str(path))

    def share_with(self, other: Net) -> None:
        """Take the parameters of another net's layers of the same names from now on.

        Nets with equal parameters have one memory. Else a net copies the other's parameters before each pass.
        """
        self._params = self._shared_or_filled(other)
        self._make_blobs(self._memory)

    def _follow_source(self) -> None:
        if self._source is None:
            return
        for layer, blobs in self._source.params.items():
            for blob, source_blob in zip(self.params.get(layer, []), blobs, strict=False):
                _assign(blob.data, source_blob.data, layer)

    def clear_param_diffs(self) -> None:
        """Set the gradients of all parameters to 0."""
        self._params["diff"][...] = 0.0

    def close(self) -> None:
        """Close the data, and end the net's process; the next pass opens the data and starts the process again."""
        self._feed.close()
        self._process.end()

    def __enter__(self) -> Net:
        """Return the net."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def __iter__(self) -> Iterator[LayerSpec]:
        """Return the built layers."""
        return iter(self._spec.layers)

    def _card(self) -> Card:
        rows = [
            [
                layer.name,
                layer.type,
                ", ".join(
                    f"{top} {'x'.join(map(str, self.blobs[top].shape))}" for top in layer.tops if top in self.blobs
                ),
                " ".join(_extents(blob) for blob in self.params.get(layer.name, ())),
            ]
            for layer in self._spec.layers
            if layer.type != "Split"
        ]
        n_params = f"{self._spec.params.n_params:,} parameters, phase {self._phase}"
        return Card(
            f"Net: {self._spec.name}", n_params, table=CardTable(["layer", "type", "blobs", "parameters"], rows)
        )

    def _position(self, layer: str, argument: str) -> int:
        names = self.layer_names
        if layer not in names:
            msg = f"{argument}={layer!r}: no such layer; allowed: {', '.join(names)}"
            raise ConfigError(msg)
        return names.index(layer)

    def _require_blob(self, name: str) -> None:
        if name not in self.blobs:
            msg = f"blob {name!r}: no such blob; allowed: {', '.join(self.blobs)}"
            raise ConfigError(msg)

    def _take_inputs(self, inputs: Mapping[str, Any]) -> None:
        if not inputs:
            return
        if set(inputs) != set(self.inputs):
            msg = f"inputs {', '.join(inputs)}: the net has {', '.join(self.inputs) or 'none'}: give all of them"
            raise ConfigError(msg)
        for name, values in inputs.items():
            _assign(self.blobs[name].data, values, name)


def _extents(blob: Blob) -> str:
    return "x".join(map(str, blob.shape))


def _same_params(first: NetSpec, second: NetSpec) -> bool:
    shapes = [[(entry.layer, entry.index, entry.shape) for entry in spec.params.entries] for spec in (first, second)]
    return shapes[0] == shapes[1]


def _assign(target: Floats, values: Any, name: str) -> None:
    array = np.asarray(values)
    if array.shape != target.shape:
        msg = f"{name}: shape {array.shape}; allowed: {target.shape}; reshape the blob first for another one"
        raise ConfigError(msg)
    target[...] = array


def _padded(values: Floats, count: int) -> Floats:
    missing = count - len(values)
    return np.concatenate([values, np.repeat(values[-1:], missing, axis=0)]) if missing else values


def net_file(path: StrPath) -> Path:
    """Return the absolute path of a net or solver, and let this process read the file's data."""
    file = absolute_local_path(path)
    limit_named_files(AS_GIVEN, (file.parent,))
    return file
