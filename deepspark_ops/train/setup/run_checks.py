"""Checks of a run's paths and data before Spark and TensorFlow start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from caffe_import.net.net_spec import NetSpec
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.exchange.state.leases import DatasetOrder
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.manifest import SplitName, require_one_recipe
from deepspark_ops.shards.verification import verify
from deepspark_ops.stores.store_path import DataPath
from deepspark_ops.train.data.data_binding import dataset_orders
from deepspark_ops.train.data.data_layers import FedLayer
from deepspark_ops.train.data.sample_sizes import net_of_largest_sample
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.staged_reading import room_for_training

_DIGESTS: Final[Mapping[str, bool | None]] = {"auto": None, "digests": True, "sizes": False}
"""``TrainConfig.verify`` -> argument ``digests`` of ``shards.verification.verify``."""


def check_paths(config: TrainConfig) -> None:
    """Refuse missing files and folders.

    Raises:
        ConfigError: Names the first missing path.
    """
    for path in config.weights or ():
        if not path.is_file():
            msg = f"weights={path}: no such file"
            raise ConfigError(msg)
    if config.resume is not None and not config.resume.is_file():
        msg = f"resume={config.resume}: no such file"
        raise ConfigError(msg)
    if config.dataset is not None and not config.dataset.is_dir():
        msg = f'dataset={config.dataset}: no such folder; run "deepspark ingest" first, or give its --output'
        raise ConfigError(msg)
    if config.run_dir.exists() and not config.run_dir.is_dir():
        msg = f"run_dir={config.run_dir}: is a file; a folder is needed"
        raise ConfigError(msg)


def check_dataset(dataset: DataPath, run: Run) -> None:
    """Compare the run's splits with the manifests: a damaged page would kill the reading process.

    Raises:
        DataError: The first difference, or splits of different ingestions.
    """
    splits: tuple[SplitName, ...] = ("train", "test") if run.test_nets else ("train",)
    manifests = {
        split: verify(DatasetPaths(dataset).split(split), digests=_DIGESTS[run.config.verify]) for split in splits
    }
    require_one_recipe(dataset, manifests)


def check_data(run: Run) -> dict[str, DatasetOrder]:
    """Open every data layer once; return the orders in which the exchange leases the training data."""
    try:
        layers, tests = run.train_layers(), run.test_layers()
        for fed in (layers, *tests):
            for layer in fed:
                _check_classes(layer, run.config.dataset)
        for net in (run.train_net, *run.test_nets):
            run.binding.drawn_layers(net)
        config = run.config
        return dataset_orders(
            run.train_net,
            layers,
            order=config.order,
            n_workers=config.n_workers,
            seed=run.random_seed,
            staged_bytes=room_for_training(run),
        )
    finally:
        run.binding.close()


def check_sizes(run: Run) -> tuple[NetSpec, list[str]]:
    """Return the training net for the largest of the first samples, and notes on samples of several sizes.

    Raises:
        DataError, NetError: See ``net_of_largest_sample``.
    """
    try:
        largest, note = net_of_largest_sample(run.train_net, run.train_layers())
        tests = zip(run.test_nets, run.test_layers(), strict=True)
        notes = [note, *(net_of_largest_sample(net, layers)[1] for net, layers in tests)]
        return largest, [*dict.fromkeys(filter(None, notes))]
    finally:
        run.binding.close()


def _check_classes(fed: FedLayer, dataset: DataPath | None) -> None:
    """Compare the dataset's classes with the classes of the layers that read labels, without reading a sample."""
    manifest = fed.samples.dataset.manifest
    if manifest is None:
        return
    for user in (column.user for column in fed.labels):
        # An ignored label need not be a class, but the dataset counts it.
        n_scores = user.labels.n_classes
        if manifest.n_classes > n_scores and user.labels.ignore_label is None:
            msg = (
                f'layer "{user.layer}": bottom "{user.scores}" has {n_scores} scores per sample, the dataset'
                f" {dataset} has {manifest.n_classes} classes; give the net as many outputs as classes"
            )
            raise ConfigError(msg)
