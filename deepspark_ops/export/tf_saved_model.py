"""The SavedModel: raw samples in, the net's answers out, preprocessing inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.net.batch_size import BuildNet, net_of_any_batch
from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.tf_graph import tensorflow as tf
from caffe_import.tf_graph.builder import build_forward, initial_layer_state
from caffe_import.tf_graph.fixed_weights import large_values_kept_by
from deepspark_ops.export.served_input import Serve, ServedInput
from deepspark_ops.export.served_output import CLASSES, ServedOutput
from deepspark_ops.shards.table_columns import TableColumns

SIGNATURE = "serving_default"
Params = Sequence[tf.Tensor | Vector]
"""A net's parameters: the layout's blobs in Caffe's shapes, as arrays or, for a converter, as tensors of the graph."""
_NO_SEED = (0, 0)
_TRIAL_SAMPLES = 3
_TRIAL_TOLERANCE = 1e-4
_MAX_SHOWN_AXES = 16


class ServedModel(tf.Module):  # type: ignore[misc]
    """Graph of a bundle's files: from samples in the form of requests to answers.

    Attributes:
        serve: The ``tf.function`` behind the signature: refuses requests of a wrong shape.
        kernels: Weights as the graph's kernels read the weights, stored outside the graph, whose size is limited to
            2 GiB. Small weights are constants of the graph.
    """

    def __init__(
        self,
        build: BuildNet,
        params: Vector,
        inputs: Sequence[ServedInput],
        outputs: Sequence[ServedOutput],
        *,
        trial: Mapping[str, npt.NDArray[np.float32]],
        unit_batch: int = 1,
        is_portable: bool = False,
    ) -> None:
        """Build the parts of the graph; writing the graph traces it.

        ``trial`` has input samples of the net by blob: they show whether the net can compute any batch size. With
        ``is_portable`` the graph has only operations that TensorFlow Lite has, too.

        Raises:
            NetError: A layer type that cannot be computed.
        """
        super().__init__()
        self.kernels: list[tf.Variable] = []
        self._unit_batch = unit_batch
        self._is_portable = is_portable
        self._single = build(unit_batch)
        self._params = tuple(build_forward(self._single).fixed_entries(params))
        self._any_batch = net_of_any_batch(build)
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self.serve = tf.function(self._serve, input_signature=self.signature(), autograph=False)
        self._try_any_batch(trial)

    @property
    def takes_any_batch(self) -> bool:
        """Can the net compute any batch size at once? If not, ``serve`` computes ``unit_batch`` samples at a time."""
        return self._any_batch is not None

    def has_operation(self, name: str) -> bool:
        """Does the graph have an operation of this type?"""
        graph = self.serve.get_concrete_function().graph.as_graph_def()
        nodes = [graph.node, *(function.node_def for function in graph.library.function)]
        return any(node.op == name for part in nodes for node in part)

    def signature(self) -> list[tf.TensorSpec]:
        """Return the signature: one entry per argument, by name, of any batch size."""
        return [
            tf.TensorSpec(
                [None, *(None if extent < 0 else extent for extent in served.shape)], served.dtype, served.name
            )
            for served in self._inputs
        ]

    def with_blobs(self) -> tuple[Any, list[tf.TensorSpec]]:
        """Return ``serve`` for a converter, and its arguments: the signature's, then each parameter blob.

        A converter handles the graph without 200 MB of parameters, and adds the parameters at the end. Requests are not
        checked: the reader of the converted file compares requests with the signature of the file.
        """
        layout = self._single.params.entries
        blobs = [tf.TensorSpec(entry.shape, tf.float32, f"blob_{at}") for at, entry in enumerate(layout)]

        def serve(*arguments: tf.Tensor) -> dict[str, tf.Tensor]:
            n_inputs = len(self._inputs)
            return self._answer(arguments[:n_inputs], list(arguments[n_inputs:]))

        signature = [*self.signature(), *blobs]
        return tf.function(serve, input_signature=signature, autograph=False), signature

    def _try_any_batch(self, feeds: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """Drop the net of any batch size unless the results equal the results of the net of a single sample.

        A layer may compute with the batch size; only a run shows this.
        """
        names = [served.blob for served in self._inputs]
        rows = {name: np.resize(feeds[name], (_TRIAL_SAMPLES, *feeds[name].shape[1:])) for name in names}
        if self._any_batch is None:
            return
        row_feeds = [{name: values[row : row + 1] for name, values in rows.items()} for row in range(_TRIAL_SAMPLES)]
        singles = self._compute(self._single, row_feeds)
        try:
            (batch_results,) = self._compute(self._any_batch, [rows])
        except (ValueError, TypeError, tf.errors.InvalidArgumentError):
            self._any_batch = None
            return
        for name, values in batch_results.items():
            expected = np.concatenate([single[name] for single in singles])
            bound = _TRIAL_TOLERANCE * float(np.abs(expected).max(initial=0))
            if values.shape != expected.shape or not np.allclose(values, expected, rtol=0, atol=bound):
                self._any_batch = None

    def _compute(
        self, net: NetSpec, feeds: Sequence[Mapping[str, npt.NDArray[np.float32]]]
    ) -> list[dict[str, npt.NDArray[np.float32]]]:
        """Return a net's results for each batch; the traced graph takes any number of samples, as in serving."""
        names = sorted(feeds[0])
        signature = [tf.TensorSpec([None, *feeds[0][name].shape[1:]], tf.float32) for name in names]

        def compute(*arguments: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._run(net, dict(zip(names, arguments, strict=True)), self._params)

        # A call of the tf.function itself would log a warning of TensorFlow about many traces.
        function = tf.function(compute, input_signature=signature, autograph=False).get_concrete_function()
        computed = [function(*(tf.constant(batch[name]) for name in names)) for batch in feeds]
        return [{name: value.numpy() for name, value in results.items()} for results in computed]

    def _serve(self, *arguments: tf.Tensor) -> dict[str, tf.Tensor]:
        checked = [
            _checked_request(argument, served.name, served.shape)
            for argument, served in zip(arguments, self._inputs, strict=True)
        ]
        with large_values_kept_by(self._kernel):
            return self._answer(checked, self._params)

    def _kernel(self, value: tf.Tensor) -> tf.Tensor:
        """Return the value read from a variable; the nets of both batch sizes, and a traced loop, share variables."""
        with tf.init_scope():
            present = (k for k in self.kernels if k.shape == value.shape and np.array_equal(k.numpy(), value.numpy()))
            kernel = next(present, None)
            if kernel is None:
                kernel = tf.Variable(value, trainable=False, name="kernel")
                self.kernels.append(kernel)
        return kernel.read_value()

    def _answer(self, arguments: Sequence[tf.Tensor], params: Params) -> dict[str, tf.Tensor]:
        feeds = {
            served.blob: preprocess(argument, served) for argument, served in zip(arguments, self._inputs, strict=True)
        }
        answers = self._answers(feeds, params)
        main = self._outputs[0]
        return {**answers, CLASSES: tf.argmax(answers[main.name], axis=1)} if main.has_classes else answers

    def _answers(self, feeds: Mapping[str, tf.Tensor], params: Params) -> dict[str, tf.Tensor]:
        """Return each output (N, ...): in one batch if possible, else ``unit_batch`` samples at a time."""
        if self._any_batch is not None:
            return self._run(self._any_batch, feeds, params)
        unit = self._unit_batch
        spec = {output.name: tf.TensorSpec((unit, *output.shape), tf.float32) for output in self._outputs}

        def answered(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return self._run(self._single, batch, params)

        batches = {blob: _in_units(values, unit) for blob, values in feeds.items()}
        by_unit = tf.map_fn(answered, batches, fn_output_signature=spec, parallel_iterations=1)
        n_samples = tf.shape(next(iter(feeds.values())))[0]
        return {
            output.name: tf.reshape(by_unit[output.name], (-1, *output.shape))[:n_samples] for output in self._outputs
        }

    def _run(self, net: NetSpec, feeds: Mapping[str, tf.Tensor], params: Params) -> dict[str, tf.Tensor]:
        state = {name: tf.constant(value) for name, value in initial_layer_state(net).items()}
        forward = build_forward(net, is_portable=self._is_portable, has_gradient=False)
        result = forward.on_entries(params, state, tf.constant(_NO_SEED, tf.int32), feeds)
        return {
            output.name: tf.reshape(result.blobs[output.blob].caffe, (-1, *output.shape)) for output in self._outputs
        }


def preprocess(values: tf.Tensor, served: ServedInput) -> tf.Tensor:
    """Return input values of the net: float32, Caffe's axis order, (centre of x - mean) * scale.

    The tensor form of ``caffe_import.data.transform.transform_batch`` in phase TEST.

    Args:
        values: (N, H, W, C) red first for an image, else Caffe's order; dtype as in ``served``.
        served: Input with its preprocessing.
    """
    values = tf.cast(values, tf.float32)
    if served.table is not None:
        return _standardized(values, served.table)
    if not served.is_image:
        return values
    is_red_first = served.shape[-1] == 3
    order = slice(None, None, -1 if is_red_first else 1)
    options = served.transform
    if options is not None:
        mean = None if options.mean is None else tf.constant(options.mean[order].transpose(1, 2, 0))
        if options.crop_size:
            values = _centre(values, options.crop_size)
            mean = None if mean is None else _centre(mean[tf.newaxis], options.crop_size)[0]
        if mean is not None:
            values -= mean
        elif options.mean_values:
            values -= tf.constant(np.asarray(options.mean_values, np.float32)[order])
        values *= tf.constant(options.scale, tf.float32)
    values = tf.transpose(values, (0, 3, 1, 2))
    # Last, and by tf.gather: reversing the last axis takes as long as a small net's first layer.
    return tf.gather(values, (2, 1, 0), axis=1) if is_red_first else values


def _in_units(values: tf.Tensor, unit: int) -> tf.Tensor:
    """Return (N, ...) as (K, unit, ...), filled up by repeating the last sample."""
    if unit > 1:
        n_missing = -tf.shape(values)[0] % unit
        values = tf.concat([values, tf.repeat(values[-1:], n_missing, axis=0)], axis=0)
    return tf.reshape(values, (-1, unit, *values.shape[1:]))


def _checked_request(values: tf.Tensor, name: str, shape: Shape) -> tf.Tensor:
    """Return a request's argument after a check of its shape.

    An extent of -1 in ``shape``, which has no batch axis, allows any extent except 0.

    TensorFlow compares a request's dtype with the signature, but not the shape: a kernel compiled for another shape
    then ends the whole serving process.

    Returns:
        The same values. For another rank or extent, or a batch of 0 samples, running the operation raises
        ``InvalidArgumentError`` with the argument's name, the shape of the request and the allowed shape.
    """
    # Later operations rely on a shape that the signature declares; a placeholder of unknown shape hides the shape.
    untyped_values = tf.raw_ops.PlaceholderWithDefault(input=values, shape=tf.TensorShape(None))
    request_shape = tf.shape(untyped_values)
    allowed_shape = tf.constant([-1, *shape], tf.int32)
    rank = len(shape) + 1
    extents = tf.concat([request_shape, tf.zeros([rank], tf.int32)], 0)[:rank]
    fits = tf.where(allowed_shape < 0, extents > 0, extents == allowed_shape)
    is_good = tf.logical_and(tf.size(request_shape) == rank, tf.reduce_all(fits))
    allowed = ", ".join(["N", *(str(extent) if extent >= 0 else "any" for extent in shape)])
    message_parts = [
        f'input "{name}": the request has shape',
        request_shape,
        f"allowed: ({allowed}) with N of at least 1",
    ]
    with tf.control_dependencies([tf.debugging.Assert(is_good, message_parts, summarize=_MAX_SHOWN_AXES)]):
        return tf.ensure_shape(
            tf.identity(untyped_values), [None, *(extent if extent >= 0 else None for extent in shape)]
        )


def _standardized(values: tf.Tensor, table: TableColumns) -> tf.Tensor:
    """Return a table's features in the stored form; see ``TableColumns.apply`` for float64."""
    fill, mean, mean_residual, std = table.float32_parts()
    if fill is not None:
        values = tf.where(tf.math.is_nan(values), fill, values)
    return (values - mean - mean_residual) / std if table.is_standardized else values


def _centre(images: tf.Tensor, size: int) -> tf.Tensor:
    """Cut the central square out of (N, H, W, C); offsets are rounded down, as Caffe's."""
    begin = (tf.shape(images) - (0, size, size, 0)) // 2 * (0, 1, 1, 0)
    # tf.slice: its result has a known shape without EnsureShape, which TensorFlow Lite lacks.
    return tf.slice(images, begin, (-1, size, size, images.shape[3]))


def write_saved_model(folder: Path, model: ServedModel) -> None:
    """Create ``folder`` and write a SavedModel with the signature ``serving_default``."""
    tf.saved_model.save(model, str(folder), signatures={SIGNATURE: model.serve})


def load_saved_model(folder: Path) -> Serve:
    """Return the served function of a SavedModel: argument name -> array in, output name -> array out."""
    model = tf.saved_model.load(str(folder))
    signature = model.signatures[SIGNATURE]

    def serve(arguments: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        tensors = {name: tf.constant(value) for name, value in arguments.items()}
        # The model owns the variable of the signature: keep the model alive as long as the function.
        return {name: value.numpy() for name, value in (model, signature)[1](**tensors).items()}

    return serve
