"""Reading from a store or the driver's disk: whether copies of a run's data fit on the disk, and the cost if not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil

from deepspark_ops.exchange.state.leases import DatasetOrder
from deepspark_ops.processes.cluster_network import stays_in_process
from deepspark_ops.shards.manifest import DatasetManifest
from deepspark_ops.sizes import size_text
from deepspark_ops.stores.staging import staging
from deepspark_ops.train.data.data_layers import FedLayer
from deepspark_ops.train.setup.run import Run


def room_for_training(run: Run) -> int | None:
    """Return the bytes for copies of training shards if not all splits fit at once; None if all fit, or none is copied.

    The test set keeps its copies up to a quarter of the room: each test reads the whole test set.
    """
    n_bytes = staging().n_bytes
    train, test = _bytes_of(_manifests(run, run.train_layers())), _bytes_of(_manifests(run, _test_layers(run)))
    return None if train + test <= n_bytes else n_bytes - min(test, n_bytes // 4)


def notes_on_staging(run: Run, orders: Mapping[str, DatasetOrder]) -> list[str]:
    """Return notes on repeated fetching; none if all data fit or no host copies data."""
    if room_for_training(run) is None:
        return []
    layers = {layer.stream: layer for layer in run.train_layers()}
    return [_note(run, orders[stream], manifest) for stream in layers for manifest in _manifests(run, [layers[stream]])]


def fetched_text(run: Run, n_fetched: int, n_bytes: int) -> str:
    """Return the line at the end on ``n_fetched`` shards with ``n_bytes`` that all hosts fetched."""
    n_shards = sum(len(manifest.shards) for manifest in _manifests(run, [*run.train_layers(), *_test_layers(run)]))
    times = f", each of {n_shards} shards {n_fetched / n_shards:.3g} times on average" if n_shards else ""
    return f"fetched from {run.config.dataset}: {size_text(n_bytes)} in {n_fetched} copies of shards{times}"


def _note(run: Run, order: DatasetOrder, manifest: DatasetManifest) -> str:
    size, n_shards = manifest.n_bytes, len(manifest.shards)
    epochs = run.solver.max_iter * run.images_per_step() / order.n_samples
    largest = max(shard.n_bytes for shard in manifest.shards)
    tests = _bytes_of(_manifests(run, _test_layers(run)))
    text = (
        f"the training set in {run.config.dataset} has {size_text(size)} in {n_shards} shards, more than"
        f" staging_size={size_text(staging().n_bytes)} holds beside {size_text(tests)} for tests: each host that"
        f" reads copies of all shards fetches them about once per epoch, some {size_text(round(epochs * size))} in the"
        f" {epochs:.3g} epochs of this run"
    )
    if order.mixed_shards:
        text += f"; shuffled order mixes the samples of {min(n_shards, order.mixed_shards)} shards at a time"
    # The next shard is fetched while each worker reads a shard.
    least = (run.config.n_workers + 2) * largest
    if staging().n_bytes < least:
        text += f"; {run.config.n_workers} workers on one host may need {size_text(least)} at once"
    enough = ceil((size + tests + largest) / 2**20)
    return f"{text}; with staging_size={enough}MiB or more it fetches each shard once in the run"


def _bytes_of(manifests: Iterable[DatasetManifest]) -> int:
    return sum(manifest.n_bytes for manifest in manifests)


def _test_layers(run: Run) -> list[FedLayer]:
    return [layer for net in run.test_layers() for layer in net]


def _manifests(run: Run, layers: Iterable[FedLayer]) -> list[DatasetManifest]:
    """Return the manifest of each set that hosts may copy: from a store, and on a cluster from the driver's disk."""
    is_cluster = not stays_in_process(run.config.master)
    datasets = {id(layer.samples): layer.samples.dataset for layer in layers}.values()
    return [dataset.manifest for dataset in datasets if dataset.manifest and (is_cluster or dataset.is_staged)]
