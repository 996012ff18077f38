"""A run as described by the run's folder, and the results of preparing a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from caffe_import.devices.compute_plan import ComputePlan
from caffe_import.layers.batch_norm import moving_fractions
from caffe_import.net.net_spec import NetSpec
from caffe_import.solver.solver_spec import SolverSpec
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.exchange.state.leases import DatasetOrder
from deepspark_ops.param_vector import StatisticBlobs
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.train.data.data_binding import DataBinding
from deepspark_ops.train.data.data_layers import DrawnLayer, FedLayer, NetFeed


@dataclass(frozen=True)
class Run:
    """A run as described by the run's folder. Close ``binding`` at the end.

    Attributes:
        config: The config with absolute paths.
        paths: The run's folder.
        solver: The solver as used; iter_size counts the passes of all replicas of a worker.
        train_net: Built for phase TRAIN.
        test_nets: Built for phase TEST, one per test net.
        binding: Opens the nets' data.
        plan: How a worker computes a training step.
        weights: Files of start weights in the solver.
    """

    config: TrainConfig
    paths: RunPaths
    solver: SolverSpec
    train_net: NetSpec
    test_nets: tuple[NetSpec, ...]
    binding: DataBinding
    plan: ComputePlan
    weights: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        """First part of snapshot names: Caffe's snapshot_prefix without folders."""
        return Path(self.solver.snapshot_prefix).name

    @property
    def random_seed(self) -> int:
        """Seed of fillers, shuffling and random draws."""
        return self.solver.random_seed

    def train_layers(self) -> tuple[FedLayer, ...]:
        """Return the training net's fed layers."""
        return self.binding.fed_layers(self.train_net)

    def test_layers(self) -> tuple[tuple[FedLayer, ...], ...]:
        """Return each test net's fed layers."""
        return tuple(self.binding.fed_layers(net) for net in self.test_nets)

    def train_drawn(self) -> tuple[DrawnLayer, ...]:
        """Return the training net's data layers with random draws."""
        return self.binding.drawn_layers(self.train_net)

    def test_feeds(self) -> tuple[NetFeed, ...]:
        """Return the data of each test net."""
        parts = zip(self.test_nets, self.test_layers(), self.solver.test_iter, strict=True)
        return tuple(NetFeed(layers, n_batches, self.binding.drawn_layers(net)) for net, layers, n_batches in parts)

    def statistics(self) -> StatisticBlobs:
        """Return BatchNorm's blobs in the training net's parameters."""
        return StatisticBlobs.from_layout(self.train_net.params, moving_fractions(self.train_net))

    def images_per_step(self) -> int:
        """Return the samples of a minibatch: batch_size of the first data layer times iter_size."""
        return (self.train_net.batch_size or 1) * self.solver.iter_size


@dataclass(frozen=True)
class PreparedRun:
    """The results of preparing a run.

    Attributes:
        run: The run.
        orders: Stream -> the order in which the exchange leases the samples.
        notes: Lines for the user.
    """

    run: Run
    orders: Mapping[str, DatasetOrder]
    notes: tuple[str, ...]
