"""Strategies that measure over the same minibatches again and again: their data, and checks of the net."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from caffe_import.net.net_spec import LayerSpec
from caffe_import.proto import caffe_pb2
from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.state.leases import DatasetOrder
from deepspark_ops.train.data.batch_source import BatchSource, Feeds
from deepspark_ops.train.data.data_layers import leased_layer

if TYPE_CHECKING:
    from deepspark_ops.train.setup.run import Run


class RepeatedBatches:
    """The first ``n_steps`` steps of a source, over and over, kept in memory. Used by a single thread."""

    def __init__(self, source: BatchSource, n_steps: int, iter_size: int) -> None:
        """Read nothing yet.

        Args:
            source: Source of the steps and of the tests' batches.
            n_steps: Number of steps to keep.
            iter_size: Passes of a step.
        """
        self._source = source
        self._missing = n_steps
        self._iter_size = iter_size
        self._blocks: list[tuple[Feeds, int]] = []
        self._block = self._offset = 0

    def take(self, max_steps: int) -> tuple[Feeds, int]:
        """See ``BatchSource``."""
        if self._missing:
            feeds, n_steps = self._source.take(min(max_steps, self._missing))
            if n_steps:
                feeds = {top: values.copy() for top, values in feeds.items()}
                self._blocks.append((feeds, n_steps))
                self._missing -= n_steps
            return feeds, n_steps
        feeds, n_held = self._blocks[self._block]
        first, stop = self._offset, min(n_held, self._offset + max_steps)
        self._offset = stop
        if stop == n_held:
            self._block, self._offset = (self._block + 1) % len(self._blocks), 0
        passes = slice(first * self._iter_size, stop * self._iter_size)
        return {top: values[passes] for top, values in feeds.items()}, stop - first

    def test_batches(self, net: int, ordinal: int) -> Iterator[Feeds]:
        """See ``BatchSource``."""
        return self._source.test_batches(net, ordinal)

    def leases(self) -> Mapping[str, Mapping[str, int]]:
        """See ``BatchSource``."""
        return self._source.leases()


def steps_of_a_share(run: Run) -> int:
    """Return the minibatches of each worker that together cover the training set."""
    (layer, *_) = run.train_layers() or (None,)
    if layer is None:
        return 1
    return ceil(layer.samples.n_samples / (layer.batch_size * run.solver.iter_size * run.config.n_workers))


def leased_by_batches(run: Run, orders: Mapping[str, DatasetOrder]) -> dict[str, DatasetOrder]:
    """Return the orders with a batch per lease: no worker takes samples without measuring over them."""
    layers = run.train_layers()
    leased = {name: leased_layer([layer for layer in layers if layer.stream == name]) for name in orders}
    return {name: replace(order, piece_samples=leased[name].batch_size) for name, order in orders.items()}


def check_repeatable(run: Run, strategy: str) -> list[str]:
    """Refuse a net whose loss is not the same for the same parameters and data; return notes.

    Raises:
        ConfigError: Names the layer or the solver's field.
    """
    for layer in run.train_net.layers:
        finding = _randomness(layer)
        if finding:
            raise _refusal(strategy, layer.name, layer.type, finding)
    for drawn in run.train_drawn():
        raise _refusal(strategy, drawn.name, "WindowData", "draws its samples at random")
    for fed in run.train_layers():
        if fed.transform is not None and fed.transform.is_random("TRAIN"):
            finding = "its transform_param mirrors or crops at random"
            raise _refusal(strategy, fed.name, run.train_net.layer(fed.name).type, finding)
    if run.solver.weight_decay and run.solver.regularization_type != "L2":
        msg = f"strategy={strategy}: regularization_type={run.solver.regularization_type} has kinks; use L2"
        raise ConfigError(msg)
    return [
        f"strategy {strategy} chooses its own steps: of the solver it looks at max_iter, display, tests, snapshots and"
        " weight_decay; base_lr, lr_policy, momentum, clip_gradients and rate_scale mean nothing to it"
    ]


def _randomness(layer: LayerSpec) -> str:
    """Return why a layer's outputs differ for the same inputs; empty if the outputs are the same."""
    message = layer.message
    if layer.type == "Dropout" and message.dropout_param.dropout_ratio > 0:
        return "drops values at random"
    if layer.type == "BatchNorm" and not message.batch_norm_param.use_global_stats:
        return "moves its statistics with every batch; use_global_stats: true keeps them"
    if layer.type == "Pooling" and message.pooling_param.pool == caffe_pb2.PoolingParameter.STOCHASTIC:
        return "pools at random"
    if layer.type == "DummyData" and any(f.type not in ("", "constant") for f in message.dummy_data_param.data_filler):
        return "makes its data up at random"
    if layer.definition.state_shapes:
        return "carries its state from batch to batch"
    return ""


def _refusal(strategy: str, name: str, kind: str, finding: str) -> ConfigError:
    return ConfigError(
        f'strategy={strategy}: layer "{name}" ({kind}) {finding}; {strategy} needs the same loss for the same'
        " parameters: change the layer or choose another strategy"
    )
