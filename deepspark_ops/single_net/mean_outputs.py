"""Outputs of a net with trained weights on its data, mean over the batches: Caffe's ``caffe test``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from caffe_import.net.net_spec import NetSpec
from deepspark_ops.config.commands.single_net import NetTestConfig
from deepspark_ops.devices.host_cores import host_cores
from deepspark_ops.evaluate.samples import scored_layers
from deepspark_ops.evaluate.trained_net import load_params
from deepspark_ops.processes.batch_passes import BatchPasses, passes_at_once, several_shapes
from deepspark_ops.single_net.net_file import opened_net
from deepspark_ops.train.data.data_layers import FedLayer

if TYPE_CHECKING:
    from caffe_import.tf_graph.predict import FixedPass


@dataclass(frozen=True)
class MeanOutputs:
    """The result of a test.

    Attributes:
        name: Name of the net, else of its file.
        batch_size: Samples of a batch.
        n_batches: Number of batches.
        n_samples: Number of samples in the data; the last batch repeats the first samples.
        loss: Weighted loss, mean over the batches.
        outputs: Output blob -> values, mean over the batches.
        weights: Output blob with a loss weight -> weight.
    """

    name: str
    batch_size: int
    n_batches: int
    n_samples: int
    loss: float
    outputs: dict[str, npt.NDArray[np.float64]]
    weights: dict[str, float]


def mean_outputs(
    config: NetTestConfig, on_batch: Callable[[int, int], None] = lambda n_done, n_batches: None
) -> MeanOutputs:
    """Run a net of phase TEST over its data, from the first sample on. TensorFlow is loaded into this process.

    As in Caffe, each data layer goes on by its own batches, its last batch continues with its first samples, and
    recurrent layers keep their state from batch to batch. Unlike in Caffe, a mirroring transform does not mirror: a
    result must not be random.

    Args:
        config: Options of the test.
        on_batch: Called after each batch with the number of finished batches and the total.

    Raises:
        CaffeImportError: Net, weights and data do not fit together.
        ConfigError, DataError: Data are missing or damaged.
    """
    from caffe_import.tf_graph.builder import initial_layer_state  # so that --help needs no TensorFlow
    from caffe_import.tf_graph.devices import n_gpus_seen
    from caffe_import.tf_graph.predict import compile_fixed_forward

    with opened_net(
        config.net,
        phase="TEST",
        named_files=config.named_files,
        without_data="or give an ingested dataset: dataset",
        batch_size=config.batch_size,
        dataset=config.dataset,
    ) as opened:
        net = opened.net
        params = load_params(net, config.weights)
        layers = scored_layers(opened.binding, net, config.split)
        n_samples, batch_size = layers[0].samples.n_samples, layers[0].batch_size
        n_threads = config.threads or host_cores()
        takes_sizes = any(layer.takes_sizes for layer in layers)
        forward = compile_fixed_forward(net, params, n_threads=n_threads, takes_sizes=takes_sizes)
        n_batches = config.iterations or math.ceil(n_samples / batch_size)
        passes: BatchPasses[Mapping[str, npt.NDArray[np.float32]], FixedPass] = BatchPasses(
            lambda feeds, layer_state: forward.run(feeds, layer_state=layer_state),
            initial_layer_state(net),
            n_at_once=passes_at_once(net.blob_shapes.values(), n_threads, is_host=n_gpus_seen() == 0),
        )
        batches = (_feeds(layers, number) for number in range(n_batches))
        losses, sums = 0.0, {blob: np.zeros(net.blob_shapes[blob]) for blob in net.outputs}
        with closing(passes.results(batches)) as results:
            for number, result in enumerate(results, start=1):
                losses += result.loss
                for blob, values in result.blobs.items():
                    if values.shape[1:] != sums[blob].shape[1:]:
                        raise several_shapes(blob, values.shape, sums[blob].shape)
                    sums[blob] = sums[blob] + values
                on_batch(number, n_batches)
        means = {blob: np.asarray(total / n_batches, np.float64) for blob, total in sums.items()}
        return MeanOutputs(
            name=opened.name,
            batch_size=batch_size,
            n_batches=n_batches,
            n_samples=n_samples,
            loss=losses / n_batches,
            outputs=means,
            weights=_weights(net),
        )


def _feeds(layers: Sequence[FedLayer], number: int) -> dict[str, npt.NDArray[np.float32]]:
    """Return batch ``number`` of each layer, blob -> values; a layer goes on with its first sample after the last."""
    feeds: dict[str, npt.NDArray[np.float32]] = {}
    for layer in layers:
        columns = layer.read_wrapped(number * layer.batch_size, layer.batch_size)
        feeds |= {top: np.empty(shape, np.float32) for top, shape in layer.shapes_of(columns).items()}
        layer.fill(columns, feeds, (0,))
    return feeds


def _weights(net: NetSpec) -> dict[str, float]:
    weighted = (pair for layer in net.layers for pair in zip(layer.tops, layer.loss_weights, strict=True))
    return {top: weight for top, weight in weighted if weight != 0 and top in net.outputs}
