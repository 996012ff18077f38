"""The ``Model`` of the worker loop over the compiled net; the only TensorFlow model of this stage."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.errors import NetError
from caffe_import.files.hdf5_output import hdf5_output_inputs
from caffe_import.net.debug_info import forward_lines
from caffe_import.net.initial_vector import initial_vector
from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import ParamLayout, Vector
from caffe_import.solver.lr_policies import learning_rate
from caffe_import.tf_graph.builder import initial_layer_state
from caffe_import.tf_graph.device_copies import to_host
from caffe_import.tf_graph.devices import ReadyDevices
from caffe_import.tf_graph.mixed_steps import MixedSteps, are_mixed
from caffe_import.tf_graph.out_of_memory import OUT_OF_MEMORY, exhausted_layer, wanted_memory
from caffe_import.tf_graph.predict import FixedPass, PreparedForward, compile_prepared_forward
from caffe_import.tf_graph.train_step import TrainFunction, TrainState, compile_training
from deepspark_ops.exchange.rounds.round_closing import RoundNote
from deepspark_ops.processes.batch_passes import BatchPasses, LayerState, passes_at_once, several_shapes
from deepspark_ops.train.data.batch_source import Feeds
from deepspark_ops.train.setup.run import Run
from deepspark_ops.train.setup.side_outputs import SideOutputs, outputs_of_tests, training_outputs
from deepspark_ops.train.snapshots.snapshot import check_history
from deepspark_ops.train.snapshots.worker_state import WorkerState
from deepspark_ops.train.worker.net.model import StepReport
from deepspark_ops.train.worker.net.out_of_memory import out_of_memory
from deepspark_ops.train.worker.rates.measured_rates import rate_groups


@dataclass(frozen=True)
class CompiledNets:
    """A run's nets as functions; parameters and state go in and come out, so several models may share the functions.

    Attributes:
        train: Function of the training net.
        tests: Functions of the test nets.
    """

    train: TrainFunction
    tests: tuple[PreparedForward, ...]


def compile_nets(run: Run, devices: ReadyDevices) -> CompiledNets:
    """Compile a run's nets, without tracing.

    Raises:
        NetError: A layer type that cannot be computed.
    """
    train = compile_training(
        run.train_net,
        run.solver,
        n_threads=devices.n_threads,
        plan=run.plan,
        devices=devices.names,
        with_blob_factors=bool(rate_groups(run)),
    )
    tests = [
        compile_prepared_forward(
            net,
            n_threads=devices.n_threads,
            outputs=tuple(dict.fromkeys((*net.outputs, *hdf5_output_inputs(net)))),
            debug_info=run.solver.debug_info,
            device=devices.names[0] if devices.names else "",
        )
        for net in run.test_nets
    ]
    return CompiledNets(train, tuple(tests))


class TfModel:
    """A worker's compiled training net, test nets and training state. Used by a single thread.

    Attributes:
        statistics: BatchNorm's blobs in the parameters.
        n_passes: The solver's iter_size.
        is_on_host: Whether the model computes in the host's memory, so that feeds need no copy.
    """

    def __init__(
        self,
        run: Run,
        *,
        worker: int,
        pull: Callable[[], Vector],
        state: WorkerState | None,
        devices: ReadyDevices,
        in_parts: bool = False,
        others_wait: bool = False,
        nets: CompiledNets | None = None,
    ) -> None:
        """Compile the nets and trace the training step: half a minute for a large net.

        Args:
            run: Nets, solver and seed.
            worker: Workers with the same seed draw different numbers.
            pull: Returns the parameters to begin with, shape (n_params,), given away. Called after the compilation,
                during which other workers may have trained.
            state: The worker's own state from a snapshot; None to begin with an empty history.
            devices: The worker's devices; the run's plan has their number.
            in_parts: Whether the caller uses ``gradient`` and not ``run``.
            others_wait: Make the slow first step here, on zeros: the other workers would wait for a granted step.
            nets: Compiled nets to share between models; the first model traces the nets.

        Raises:
            NetError: A layer type that cannot be computed.
            ConfigError: The state is of another net or solver, or memory ran out.
        """
        self._seed, self._worker = run.random_seed, worker
        self._run = run
        compiled = compile_nets(run, devices) if nets is None else nets
        self._train = compiled.train
        self._mixed = MixedSteps(compiled.train)
        self.statistics = run.statistics()
        self.n_passes = run.solver.iter_size
        self.is_on_host = devices.is_host
        if nets is None:
            with self._memory_errors_named():
                if in_parts:
                    self._train.prepare_parts()
                else:
                    self._train.prepare(with_step=others_wait)
        sides = outputs_of_tests(run.test_nets, run.paths)
        self._tests = [
            _TestNet(side, run.train_net.params, forward, self._seed, devices)
            for side, forward in zip(sides, compiled.tests, strict=True)
        ]
        self._side = training_outputs(run.train_net, run.paths, worker=worker, n_workers=run.config.n_workers)
        self._passes: Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]] = {}
        self._blob_factors: Vector | None = None
        self._state = self._train.initial_state(pull())
        if state is not None:
            self._state = _restored(self._state, state)

    @property
    def updates(self) -> int:
        """Updates this worker has made, earlier lives of the run included."""
        return self._state.updates

    def run(self, *, step: int, n_steps: int, rate_scale: float, feeds: Feeds) -> StepReport:
        """See ``Model``."""
        with self._memory_errors_named():
            self._state, outputs = self._function_for(feeds).run(
                self._state,
                step=step,
                n_steps=n_steps,
                rate_scale=rate_scale,
                seed=self._seed,
                worker=self._worker,
                feeds=feeds,
                blob_factors=self._blob_factors,
                gives_away=True,
            )
        debug = outputs.debug
        lines = partial(debug.lines, self._train.net) if debug is not None else None
        return StepReport(
            outputs.losses,
            outputs.lr,
            self._reported(outputs.outputs, outputs.n_rows),
            lines,
            outputs.scales,
        )

    def step_of(self, step: int, feeds: Feeds) -> Callable[[Vector], Vector]:
        """See ``StabilisedModel``."""
        first = {name: rows[: self.n_passes] for name, rows in feeds.items()}
        solver_rate = np.float32(learning_rate(self._train.solver, step))

        def step_of(params: Vector) -> Vector:
            fresh = replace(self._train.initial_state(params), layer_state=self._state.layer_state)
            with self._memory_errors_named():
                stepped, _ = self._function_for(feeds).run(
                    fresh, step=step, n_steps=1, rate_scale=1.0, seed=self._seed, worker=self._worker, feeds=first
                )
            subtracted: Vector = stepped.history_view()[0] / solver_rate
            return subtracted

        return step_of

    def _function_for(self, feeds: Feeds) -> TrainFunction | MixedSteps:
        return self._mixed if self.n_passes > 1 and are_mixed(feeds) else self._train

    @contextmanager
    def _memory_errors_named(self) -> Iterator[None]:
        """Turn TensorFlow's error for exhausted memory into the message that ends the run."""
        try:
            yield
        except OUT_OF_MEMORY as error:
            layer = exhausted_layer(error, self._train.net)
            raise out_of_memory(self._run, self._worker, layer, wanted_memory(error)) from error

    def to_device(self, feeds: Feeds) -> Feeds:
        """Return the feeds of a ``run`` as tensors in the device's memory; any thread may call it."""
        return dict(feeds) if are_mixed(feeds) else self._train.feeds_to_device(feeds)

    def gradient(self, *, step: int, rate_scale: float, feeds: Feeds) -> tuple[Vector, StepReport]:
        """See ``GradientSource``."""
        with self._memory_errors_named():
            self._state, result = self._function_for(feeds).gradient(
                self._state, step=step, seed=self._seed, worker=self._worker, feeds=feeds
            )
        rate = np.float32(learning_rate(self._train.solver, step)) * np.float32(rate_scale)
        outputs = {name: value[np.newaxis] for name, value in result.outputs.items()}
        n_rows = {name: value[np.newaxis] for name, value in result.n_rows.items()}
        losses, rates = np.array([result.loss], np.float32), np.array([rate], np.float32)
        lines = partial(result.debug.lines, self._train.net) if result.debug is not None else None
        return result.gradient, StepReport(losses, rates, self._reported(outputs, n_rows), lines, result.scales)

    def _reported(self, blobs: Feeds, n_rows: Feeds) -> dict[str, npt.NDArray[Any]]:
        """Keep the blobs of HDF5Output layers and return the net's outputs."""
        net = self._train.net
        self._passes = {name: (blobs[name], n_rows[name]) for name in hdf5_output_inputs(net)}
        return {name: blobs[name] for name in net.outputs}

    def write_outputs(self, offset: int) -> None:
        """See ``Model``."""
        if self._passes:
            # Behind Filter a batch has fewer rows than the array here.
            rows = {name: values[offset][: n_rows[offset]] for name, (values, n_rows) in self._passes.items()}
            self._side.write(rows)

    def count_update(self) -> int:
        """See ``GradientSource``."""
        self._state = replace(self._state, updates=self._state.updates + 1)
        return self._state.updates

    def apply(self, gradient: Vector, *, step: int, rate_scale: float) -> None:
        """See ``GradientSource``."""
        with self._memory_errors_named():
            self._state, _ = self._train.apply(self._state, gradient, step=step, rate_scale=rate_scale)

    def local(self) -> Vector:
        """See ``Model``."""
        return self._state.params_view()

    def reader_of_local(self) -> Callable[[], Vector]:
        """See ``Model``; the function reads a state of its own, which no run takes."""
        return replace(self._state).params_view

    def replace_local(self, local: Vector) -> None:
        """See ``Model``."""
        self._state = replace(self._state, params=local)

    def start_at(self, params: Vector) -> None:
        """See ``Model``."""
        fresh = self._train.initial_state(params)
        self._state = replace(fresh, updates=self._state.updates, loss_scale=self._state.loss_scale)

    def momentum(self) -> Sequence[Vector]:
        """See ``StabilisedModel``."""
        return self._train.history_blobs(self._state)

    def replace_momentum(self, momentum: Sequence[Vector]) -> None:
        """See ``StabilisedModel``."""
        self._state = replace(self._state, history=self._train.history_of(momentum))

    def use_blob_factors(self, factors: Vector) -> None:
        """See ``StabilisedModel``."""
        self._blob_factors = factors

    def round_note(self) -> RoundNote | None:
        """See ``Model``."""
        return None

    def state(self) -> WorkerState:
        """See ``Model``."""
        layer_state = {name: to_host(value) for name, value in self._state.layer_state.items()}
        return WorkerState(self._state.history_view(), layer_state, self._state.updates, self._state.loss_scale)

    def begin_test(self, net: int, params: Vector) -> None:
        """See ``Model``."""
        self._tests[net].begin(params)

    def test(self, net: int, batches: Iterable[Feeds]) -> Generator[Mapping[str, npt.NDArray[np.float32]], None, None]:
        """See ``Model``."""
        return self._tests[net].run(batches)

    def test_debug_lines(self, net: int) -> list[str]:
        """See ``Model``."""
        return self._tests[net].debug_lines

    def write_test_outputs(self, net: int) -> None:
        """See ``Model``."""
        self._tests[net].end()


def _restored(fresh: TrainState, state: WorkerState) -> TrainState:
    check_history(state.history.shape, fresh.history_view().shape)
    layer_state = {name: state.layer_state.get(name, value) for name, value in fresh.layer_state.items()}
    # After a run with another precision float16 begins with the first scale, and other precisions have no scale.
    scale = fresh.loss_scale and (state.loss_scale or fresh.loss_scale)
    return TrainState(fresh.params, state.history, layer_state, state.updates, scale)


class _TestNet:
    """A test net with parameters from the training net's vector, by layer name.

    Layers without a partner in the training net keep the values of their fillers.
    Source: BVLC Caffe @9b89154, src/caffe/net.cpp, Net::ShareTrainedLayersWith.
    """

    def __init__(
        self, side: SideOutputs, trained: ParamLayout, forward: PreparedForward, seed: int, devices: ReadyDevices
    ) -> None:
        net = side.net
        self.side = side
        self._forward = forward
        self._is_same = net.params.entries == trained.entries
        self._copies = [] if self._is_same else _shared_pieces(net, trained)
        self._filled = None if self._is_same else initial_vector(net, seed)
        self._values: list[Any] = []
        n_at_once = passes_at_once(net.blob_shapes.values(), devices.n_threads, is_host=devices.is_host)
        self._passes = BatchPasses(self._pass, initial_layer_state(net), n_at_once=n_at_once)
        self._seed = seed
        self.debug_lines: list[str] = []

    def begin(self, trained: Vector) -> None:
        """Take the training net's parameters for the next batches."""
        params = trained
        if self._filled is not None:
            params = self._filled
            for target, source in self._copies:
                params[target] = trained[source]
        self._values = self._forward.prepared(params)

    def end(self) -> None:
        """Write what the batches gave to the layers' files, and free the parameters' memory."""
        self._values = []
        self.side.write_added()

    def run(self, batches: Iterable[Feeds]) -> Generator[dict[str, npt.NDArray[np.float32]], None, None]:
        """Yield the outputs of each batch, in order; threads read and compute."""
        net = self.side.net
        with closing(self._passes.results(batches)) as results:
            for result in results:
                if result.debug is not None:
                    self.debug_lines = forward_lines(net, result.debug.tolist())
                self.side.add(result.blobs)
                yield {name: _in_whole_batch(name, result.blobs[name], net.blob_shapes[name]) for name in net.outputs}

    def _pass(self, feeds: Feeds, layer_state: LayerState) -> FixedPass:
        return self._forward.run(self._values, feeds, layer_state=layer_state, seed=self._seed)


def _in_whole_batch(name: str, values: npt.NDArray[np.float32], shape: Shape) -> npt.NDArray[np.float32]:
    """Return an output in the declared shape, so that batches can be averaged: behind Filter with rows of NaN.

    Raises:
        NetError: The output's shape depends on the size of the sample.
    """
    if values.shape == shape:
        return values
    if values.shape[1:] != shape[1:]:
        raise several_shapes(name, values.shape, shape)
    padded = np.full(shape, np.nan, np.float32)
    padded[: len(values)] = values
    return padded


def _shared_pieces(net: NetSpec, trained: ParamLayout) -> list[tuple[slice, slice]]:
    """Return the slices of every common blob in the test net's vector and in the training net's vector.

    Raises:
        NetError: A layer of the same name has another shape.
    """
    pieces: dict[tuple[int, int], tuple[slice, slice]] = {}
    for layer, index in net.params.uses:
        if (layer, index) not in trained.uses:
            continue
        target, source = net.params.entry(layer, index), trained.entry(layer, index)
        if target.shape != source.shape:
            msg = (
                f'layer "{layer}": blob {index} has shape {target.shape} in the test net and {source.shape} in the'
                " training net; layers of one name share their weights"
            )
            raise NetError(msg, layer=layer)
        pieces[target.offset, source.offset] = (slice(target.offset, target.stop), slice(source.offset, source.stop))
    return list(pieces.values())
