"""Reads a solver with nets and data, without TensorFlow, and reports problems."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Final, Literal

import numpy as np

from caffe_import.errors import CaffeImportError, NetError
from caffe_import.files.caffemodel import copy_weights, read_caffemodel
from caffe_import.layers.batch_norm import moving_fractions
from caffe_import.net.layer_registry import Phase
from caffe_import.net.net_spec import LayerSpec, NetSpec, build_net_spec
from caffe_import.net.phases import filter_layers, left_out_tops
from caffe_import.net.wiring import insert_splits
from caffe_import.proto import caffe_pb2
from caffe_import.solver.loaded_solver import LoadedSolver, load_solver
from caffe_import.solver.lr_policies import learning_rate
from caffe_import.solver.solver_nets import FilePosition, SolverNet, solver_nets
from caffe_import.solver.solver_notes import solver_notes
from caffe_import.solver.solver_spec import SolverSpec
from caffe_import.solver.update_rules import RULES
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.ingest import SourceConfig
from deepspark_ops.devices.dealing import workers_of_host
from deepspark_ops.devices.device_rows import DeviceRow
from deepspark_ops.devices.requested import requested_devices
from deepspark_ops.errors import DataError, DeepSparkError
from deepspark_ops.evaluate.tasks.choice import NO_WISH, choose_tasks, task_wish
from deepspark_ops.evaluate.trained_net import scored_test_net
from deepspark_ops.ingest.files.source_folders import source_folders
from deepspark_ops.ingest.inspect.facts import read_splits
from deepspark_ops.ingest.preview import Preview, make_preview, why_no_preview
from deepspark_ops.ingest.report.profile import resize_text
from deepspark_ops.preflight.device_check import check_devices, with_precision_notes, with_worker_devices
from deepspark_ops.preflight.emitters import require_emitter
from deepspark_ops.preflight.layer_notes import layer_notes
from deepspark_ops.preflight.memory.by_layer import machine_notes, memory_report, memory_rows, saved_by_recompute
from deepspark_ops.preflight.memory.forecast import driver_bytes, machine_bytes, worker_bytes
from deepspark_ops.preflight.net_formats import net_formats
from deepspark_ops.preflight.report import (
    DataReport,
    LayerReport,
    MemoryReport,
    MemoryRow,
    NetReport,
    PreflightReport,
    Problem,
    RatePoint,
    ResultReport,
    WorkReport,
)
from deepspark_ops.preflight.results import results_of
from deepspark_ops.processes.named_files import limit_named_files
from deepspark_ops.shards.manifest import SplitName, is_dataset, require_one_recipe
from deepspark_ops.shards.verification import verify_layer_sources
from deepspark_ops.train.data.data_binding import FED_BY_COLUMN, READS_FILES, DataBinding, separate_orders_note
from deepspark_ops.train.data.data_layers import DrawnLayer, FedLayer
from deepspark_ops.train.data.sample_cache import SampleCache
from deepspark_ops.train.data.sample_sizes import net_of_largest_sample
from deepspark_ops.train.data.sources import SourceResolver

REPORT_VERSION: Final = 4
MAX_RATE_POINTS = 12
_SAMPLED_POSITIONS: Final = 16
"""The first and the last are among the positions: many databases are sorted by label."""
_SAMPLES_TOGETHER: Final = 16


def inspect_solver(config: CheckConfig) -> PreflightReport:
    """Return the report on a solver with nets, data and initial weights.

    Raises:
        CaffeImportError: The solver or a net's file cannot be read. Later errors are problems in the report.
    """
    outside: list[str] = []
    with tempfile.TemporaryDirectory(prefix="deepspark-check-") as scratch:
        trusted_folders = [config.solver.parent, config.dataset, config.run_dir]
        trusted_folders += [] if config.ingest is None else source_folders(config.ingest)
        limit_named_files(config.named_files, trusted_folders, scratch=Path(scratch), warn=outside.append)
        solver = load_solver(config.solver, config.overrides)
        nets = solver_nets(solver, config.solver)
        is_gpu = solver.spec.message.solver_mode == caffe_pb2.SolverParameter.GPU
        requested = requested_devices(config.devices, solver_mode_is_gpu=is_gpu, per_worker=config.gpus_per_worker)
        n_workers = workers_of_host(config.n_workers, requested, os.environ)
        inspection = _Inspection(config.model_copy(update={"n_workers": n_workers}), solver, Path(scratch))
        inspection.run(nets)
    inspection.problems += [Problem(severity="warning", finding=finding) for finding in outside]
    problems = sorted(inspection.problems, key=lambda problem: problem.severity != "error")
    return PreflightReport(
        format_version=REPORT_VERSION,
        solver=str(config.solver),
        nets=tuple(inspection.nets),
        formats=net_formats(solver, config.solver, [net.file for net in nets]),
        work=inspection.work,
        problems=tuple(dict.fromkeys(problems)),
        layer_types=tuple(sorted(inspection.layer_types)),
        devices=inspection.devices,
        rows=inspection.memory_rows,
        memory=inspection.memory,
        results=inspection.results,
        no_result=inspection.no_result,
    )


class _Inspection:
    """Collects the nets and problems of a solver. Used once."""

    def __init__(self, config: CheckConfig, solver: LoadedSolver, scratch: Path) -> None:
        self._config = config
        self._solver = solver
        self.problems: list[Problem] = []
        self._blamed: set[tuple[str, FilePosition | None]] = set()
        self._preview = self._look_ahead(config.ingest, scratch) if config.ingest is not None else None
        self._dataset = self._preview.dataset if self._preview is not None else config.dataset
        self._sources = SourceResolver(self._dataset, config.solver, scratch)
        self._binding = DataBinding(self._dataset, Path.cwd())
        self.nets: list[NetReport] = []
        self.layer_types: set[str] = set()
        self.work: WorkReport | None = None
        self.devices: tuple[DeviceRow, ...] = ()
        self.memory_rows: tuple[MemoryRow, ...] = ()
        self.memory: MemoryReport | None = None
        self.results: tuple[ResultReport, ...] = ()
        self.no_result = ""

    def _look_ahead(self, source: SourceConfig, scratch: Path) -> Preview | None:
        """Return the first samples of data before the ingestion; None, with the reason noted, if reading fails."""
        try:
            if reason := why_no_preview(source):
                self._note("warning", f"shapes are not checked, the data are ingested later: {reason}")
                return None
            return make_preview(source, scratch)
        except (CaffeImportError, DeepSparkError) as error:
            self._note("error", str(error))
        except OSError as error:
            self._note("error", f"{error.filename or source.source}: {error.strerror or error}")
        return None

    def run(self, nets: Sequence[SolverNet]) -> None:
        try:
            self._inspect_nets(*nets)
        finally:
            self._binding.close()

    def _check_splits(self) -> None:
        dataset = self._dataset
        if dataset is None or not is_dataset(dataset):
            return  # the reader of the dataset reports the error
        try:
            require_one_recipe(dataset, read_splits(dataset))
        except DataError as error:
            self._note("error", str(error))

    def _inspect_nets(self, of_training: SolverNet, *of_tests: SolverNet) -> None:
        solver = self._solver
        self._check_splits()
        for note in solver_notes(solver.spec, net_asks_for_debug=solver.train_net.debug_info):
            self._note("warning", f"solver: {note}")
        train = self._inspect_net(of_training)
        if train is not None:
            self._check_training(train, of_training)
        tests = []
        for index, of_test in enumerate(of_tests):
            tests.append(test := self._inspect_net(of_test))
            if test is not None:
                self._check_test_iter(self.nets[-1], solver.spec.test_iter[index])
        has_all = train is not None and None not in tests
        index_of_scored = scored_test_net(solver) if has_all and self._reads_own_sources else 0
        if index_of_scored:
            title = of_tests[index_of_scored].title
            self._note("warning", f"evaluate scores the {title} net; each test net before reads the training data")
        self._look_for_results(of_training, tests[index_of_scored] if tests else None, has_test_net=bool(tests))
        if train is not None:
            findings = check_devices(self._config, train, solver.spec)
            self.devices = findings.devices
            self.problems += findings.problems
            self.nets[0] = with_precision_notes(self.nets[0], train, findings.plan.precision)
            saved = saved_by_recompute(self._config, train, solver.spec)
            work = _work(findings.solver, self.nets, train, self._config.n_workers, saved)
            self.work, notes = with_worker_devices(work, self._config, findings.plan, train, solver.spec)
            self.problems += [*machine_notes(self.work), *notes]
            if self._config.memory:
                self.memory_rows = memory_rows(train, solver.spec)
                self.memory = memory_report(self._config, train, solver.spec, self.work)

    def _look_for_results(self, of_training: SolverNet, scored: NetSpec | None, *, has_test_net: bool) -> None:
        """Say what evaluation will score: a test net, else the training net in phase TEST."""
        if self._has_no_data_yet or (has_test_net and scored is None):
            return  # the net's error is already noted

        def in_phase_test() -> NetSpec:
            if scored is not None:
                return scored
            state = of_training.state
            layers = filter_layers(of_training.message, phase="TEST", level=state.level, stages=tuple(state.stage))
            insert_splits(layers)
            return self._build(layers, "TEST")[0]

        config = self._config
        wish = task_wish(config.task, config.output_blob, config.target_blob)
        self.results, self.no_result = results_of(in_phase_test, wish)
        if self.no_result and wish != NO_WISH:
            self._note("error", f"evaluate: {self.no_result}")

    def _note(self, severity: Literal["error", "warning"], finding: str, position: FilePosition | None = None) -> None:
        path, line, column = (position.path, position.line, position.column) if position else ("", 0, 0)
        self.problems.append(Problem(severity=severity, finding=finding, path=path, line=line, column=column))

    def _blame(self, source: SolverNet, error: Exception) -> None:
        """Note an error with the position of the layer; of a file that several nets share, once."""
        finding, position = source.finding(error)
        if position is None or (str(error), position) not in self._blamed:
            self._note("error", finding, position)
        self._blamed.add((str(error), position))

    def _inspect_net(self, source: SolverNet) -> NetSpec | None:
        """Report a net and return the net; None, with the problem noted, if the net cannot be built."""
        title = source.title
        try:
            layers = filter_layers(
                source.message, phase=source.phase, level=source.state.level, stages=tuple(source.state.stage)
            )
            self.layer_types.update(layer.type for layer in layers.layer)
            if self._blame_types(source, layers):
                return None
            insert_splits(layers, absent=left_out_tops(source.message, layers))
            if self._has_no_data_yet and any(_is_fed(message) for message in layers.layer):
                return None
            net, fed, drawn = self._build(layers, source.phase)
            net, sizes_note = net_of_largest_sample(net, fed)
            resized = resize_text(self._dataset) if fed and self._dataset is not None else ""
        except (CaffeImportError, DeepSparkError) as error:
            self._blame(source, error)
            return None
        report = _net_report(title, net, fed, {layer.name: layer.windows.summary() for layer in drawn}, resized)
        self.nets.append(report if self._preview is None else self._with_whole_source(report, self._preview))
        for note in (*net.notes, *filter(None, [sizes_note])):
            self._note("warning", f"{title} net: {note}")
        for text, position in source.shared_memory(net):
            self._note("warning", text, position)
        self._check_labels(net, fed)
        self._check_own_samples(source, fed)
        if source.phase == "TRAIN" and (note := separate_orders_note(fed, n_workers=self._config.n_workers)):
            self._note("warning", f"{title} net: {note}")
        return net

    @property
    def _reads_own_sources(self) -> bool:
        return self._config.dataset is None and self._config.ingest is None

    @property
    def _has_no_data_yet(self) -> bool:
        return self._config.ingest is not None and self._preview is None

    def _with_whole_source(self, report: NetReport, preview: Preview) -> NetReport:
        """Return the report with the whole source, although only the first samples were read."""
        source = self._config.ingest
        if source is None:
            return report
        split: SplitName = "train" if report.phase == "TRAIN" else "test"
        path = source.test_source if split == "test" and source.test_source is not None else source.source
        source_fields = {"source": str(path), "n_samples": preview.n_samples and preview.n_samples[split]}
        return report.model_copy(update={"data": tuple(data.model_copy(update=source_fields) for data in report.data)})

    def _blame_types(self, source: SolverNet, layers: caffe_pb2.NetParameter) -> bool:
        """Note every layer of an unknown or unsupported type; return whether any layer was noted."""
        has_problem = False
        for message in layers.layer:
            try:
                require_emitter(message)
            except NetError as error:
                has_problem = True
                self._blame(source, error)
        return has_problem

    def _build(
        self, layers: caffe_pb2.NetParameter, phase: Phase
    ) -> tuple[NetSpec, Sequence[FedLayer], Sequence[DrawnLayer]]:
        resolved = self._sources.resolve(layers)
        self._sources.write_lists()
        if self._reads_own_sources:
            verify_layer_sources([resolved])  # before this process reads them
        net = build_net_spec(resolved, phase=phase, sample_shapes=partial(self._binding.sample_shapes, phase))
        return net, self._binding.fed_layers(net), self._binding.drawn_layers(net)

    def _check_labels(self, net: NetSpec, fed: Sequence[FedLayer]) -> None:
        """Compare the dataset's classes with the length of the net's score vector."""
        manifest = fed[0].samples.dataset.manifest if fed else None
        if manifest is None or not any(layer.type in ("SoftmaxWithLoss", "Accuracy") for layer in net.layers):
            return
        try:
            scores = next((task for task in choose_tasks(net) if task.task == "classification"), None)
        except NetError:
            return  # labels that the net computes: nothing to compare
        n_classes = manifest.n_classes
        if scores is None or n_classes in (0, scores.n_classes):
            return
        finding = (
            f"{scores.found_by}: {scores.n_classes} class scores in blob {scores.output!r}, the dataset has labels "
            f"0 to {n_classes - 1}; set num_output of the last layer to {n_classes}"
        )
        if n_classes > scores.n_classes:
            self._note("error", finding)
        elif net.phase == "TRAIN":
            self._note("warning", f"{finding}, unless other data have the other classes")

    def _check_own_samples(self, source: SolverNet, fed: Sequence[FedLayer]) -> None:
        """Note the first of some samples of the net's own sources that training would refuse, such as a wrong label."""
        for layer in fed:
            if layer.samples.dataset.manifest is not None or not layer.labels:
                continue
            unkept = replace(layer, samples=SampleCache(layer.samples.dataset, limit_bytes=0))
            n_samples = layer.samples.n_samples
            count = min(_SAMPLES_TOGETHER, n_samples)
            try:
                for start in np.unique(np.linspace(0, n_samples - count, _SAMPLED_POSITIONS, dtype=int)).tolist():
                    unkept.read_wrapped(start, count)
            except DeepSparkError as error:
                self._blame(source, error)

    def _check_training(self, net: NetSpec, source: SolverNet) -> None:
        if not any(weight for layer in net.layers for weight in layer.loss_weights):
            names = {layer.name for layer in net.layers}
            losses = [layer.name for layer in source.message.layer if layer.type.endswith("Loss") or layer.loss_weight]
            left_out = ", ".join(f'"{loss}"' for loss in losses if loss not in names)
            remedy = f"the rules of the solver's train_state leave out {left_out}" if left_out else "add a loss layer"
            self._note("error", f"train net: no layer has a loss, so there is nothing to train; {remedy}")
        if not net.params.n_params:
            self._note("error", "train net: no layer has parameters, so there is nothing to train")
        spec = self._solver.spec
        if spec.max_iter < 1:
            self._note("error", f"solver: max_iter={spec.max_iter}: must be at least 1")
        fraction = max(moving_fractions(net).values(), default=0.0)
        if 0 < spec.max_iter < 1 / max(1 - fraction, 1e-9):
            self._note(
                "warning",
                f"train net: BatchNorm's stored statistics average all {spec.max_iter} minibatches of the run "
                f"(moving_average_fraction {fraction:g}), so tests fall behind the training loss, as in Caffe; give "
                "more minibatches or a smaller fraction",
            )
        if not spec.snapshot and not spec.snapshot_after_train:
            self._note("error", "solver: snapshot is 0 and snapshot_after_train false, so no weights would be kept")
        self._check_weights(net, self._config.weights or [Path(path) for path in self._solver.weights])

    def _check_weights(self, net: NetSpec, files: Sequence[Path]) -> None:
        """Note the layers without weights in any file; a file without a layer of the net is an error."""
        owners = dict.fromkeys(entry.layer for entry in net.params.entries)
        filled: set[str] = set()
        for path in files:
            try:
                blobs = read_caffemodel(path, net=net)
                copy_weights(net, np.zeros(net.params.n_params, np.float32), blobs, where=str(path))
            except CaffeImportError as error:
                self._note("error", str(error))
                return
            uses = net.params.uses.items()  # weights of a layer that shares blobs fill the owner's
            filled |= {net.params.entries[position].layer for (layer, _), position in uses if blobs.get(layer)}
        hidden = _hidden_layers(net) - filled
        if zero := ", ".join(
            f'"{layer.name}"' for layer in net.layers if layer.name in hidden and _starts_at_0(net, layer)
        ):
            remedy = 'give a weight_filler, such as { type: "xavier" }, or weights'
            self._note(
                "warning", f"train net: the weights of {zero} start at 0, so the net may learn nothing; {remedy}"
            )
        fresh = ", ".join(f'"{layer}"' for layer in owners if layer not in filled)
        if files and fresh:
            names = ", ".join(str(path) for path in files)
            has = "has" if len(files) == 1 else "have"
            self._note("warning", f"{names} {has} no weights for {fresh}: these layers start fresh")

    def _check_test_iter(self, report: NetReport, test_iter: int) -> None:
        if not report.data or report.batch_size is None or (n_samples := report.data[0].n_samples) is None:
            return
        scored = test_iter * report.batch_size
        if scored != n_samples:
            how = "the rest is scored by later tests" if scored < n_samples else "some are scored twice"
            self._note(
                "warning",
                f"{report.title} net: test_iter {test_iter} x batch_size {report.batch_size} = {scored:,} samples of "
                f"{n_samples:,}; {how}",
            )


def _starts_at_0(net: NetSpec, layer: LayerSpec) -> bool:
    """Return whether a layer owns weights that are 0 when they are fresh: Caffe's default without a filler."""
    weights = layer.definition.blobs[0]
    is_owner = net.params.entry(layer.name, 0).layer == layer.name
    return is_owner and len(weights.shape) > 1 and weights.filler.type == "constant" and weights.filler.value == 0


def _hidden_layers(net: NetSpec) -> set[str]:
    """Return the layers with parameters below other layers with matrices, on every way to a loss.

    The last matrix before a loss learns from zeros.
    """
    reach_loss: set[str] = set()
    hidden = set()
    for layer in reversed(net.layers):
        is_next = any(layer.loss_weights) or any(top in reach_loss for top in layer.tops)
        if layer.definition.blobs and not is_next:
            hidden.add(layer.name)
        has_matrix = any(len(blob.shape) > 1 for blob in layer.definition.blobs)
        if is_next and not has_matrix:
            reach_loss |= set(layer.bottoms)
        else:
            reach_loss -= set(layer.bottoms)
    return hidden


def _is_fed(layer: caffe_pb2.LayerParameter) -> bool:
    return layer.type in READS_FILES or layer.type in FED_BY_COLUMN


def _net_report(title: str, net: NetSpec, fed: Sequence[FedLayer], drawn: Mapping[str, str], resized: str) -> NetReport:
    """Return the report of a net.

    Args:
        title: Title in the report.
        net: The net.
        fed: Data layers of the net.
        drawn: Name of a layer with random samples -> its source.
        resized: As in ``DataReport``.
    """
    owned: dict[str, int] = {}
    for entry in net.params.entries:
        owned[entry.layer] = owned.get(entry.layer, 0) + entry.size
    written = {top: layer.bottoms[0] for layer in net.layers if layer.type == "Split" for top in layer.tops}
    layers = tuple(
        _layer_report(layer, owned.get(layer.name, 0), net.phase, written, drawn)
        for layer in net.layers
        if layer.type != "Split"
    )
    return NetReport(
        title=title,
        phase=net.phase,
        name=net.name,
        batch_size=net.batch_size,
        layers=layers,
        data=tuple(
            DataReport(
                layer=layer.name,
                source=str(Path(layer.samples.dataset.shards[0].name).parent)
                if layer.samples.dataset.manifest
                else layer.samples.dataset.shards[0].name,
                n_samples=layer.samples.n_samples,
                sample_shapes=layer.samples.dataset.sample_shapes,
                resized=resized,
            )
            for layer in fed
        ),
        n_params=net.params.n_params,
        flops=sum(layer.flops for layer in layers),
        activation_bytes=sum(layer.activation_bytes for layer in layers),
    )


def _layer_report(
    layer: LayerSpec, n_params: int, phase: Phase, written: Mapping[str, str], drawn: Mapping[str, str]
) -> LayerReport:
    """Return the report of a layer; ``written`` gives the file's name for a top of an automatic Split."""
    definition = layer.definition
    new_blobs = [
        shape for top, shape in zip(layer.tops, definition.top_shapes, strict=True) if top not in layer.bottoms
    ]
    return LayerReport(
        name=layer.name,
        type=layer.type,
        bottoms=tuple(written.get(blob, blob) for blob in layer.bottoms),
        tops=tuple(layer.tops),
        top_shapes=definition.top_shapes,
        n_params=n_params,
        flops=definition.flops,
        activation_bytes=4 * sum(prod(shape) for shape in new_blobs),
        notes=(*([drawn[layer.name]] if layer.name in drawn else []), *layer_notes(layer, phase)),
    )


def _work(spec: SolverSpec, nets: Sequence[NetReport], net: NetSpec, n_workers: int, saved_bytes: int) -> WorkReport:
    """Return the work of a solver; ``nets`` are the reports of the nets, the training net's report first.

    A worker's memory is reduced by ``saved_bytes``.
    """
    train = nets[0]
    batch_size = train.batch_size or 1
    n_samples = spec.max_iter * batch_size * spec.iter_size
    n_available = train.data[0].n_samples if train.data else None
    n_params, n_slots = net.params.n_params, RULES[spec.type].n_slots
    worker = worker_bytes(
        n_params,
        train.activation_bytes,
        n_slots,
        step_bytes=4 * spec.iter_size * sum(prod(shape) for shape in net.inputs.values()),
        sample_bytes=[_sample_bytes(data) for report in nets for data in report.data],
    )
    worker -= saved_bytes
    driver = driver_bytes(n_params, n_slots, n_workers)
    return WorkReport(
        solver_type=spec.type,
        max_iter=spec.max_iter,
        iter_size=spec.iter_size,
        batch_size=batch_size,
        n_workers=n_workers,
        effective_batch=batch_size * spec.iter_size * n_workers,
        n_samples=n_samples,
        epochs=n_samples / n_available if n_available else None,
        learning_rates=tuple(
            RatePoint(clock=clock, learning_rate=learning_rate(spec, clock)) for clock in _rate_clocks(spec)
        ),
        worker_bytes=worker,
        driver_bytes=driver,
        machine_bytes=machine_bytes(worker, driver, n_params, n_workers),
        center_bytes=4 * n_params,
    )


def _sample_bytes(data: DataReport) -> int:
    """Return the bytes of a source's stored samples: a byte per pixel, four bytes per other value."""
    return (data.n_samples or 0) * sum(prod(shape) * (1 if len(shape) == 3 else 4) for shape in data.sample_shapes)


def _rate_clocks(spec: SolverSpec) -> list[int]:
    """Return the clocks to show: the start, every change of a stepwise policy or each quarter, the last minibatch."""
    last = max(0, spec.max_iter - 1)
    if spec.lr_policy == "multistep":
        inner = list(spec.stepvalue)
    elif spec.lr_policy == "step" and spec.stepsize > 0:
        inner = list(range(spec.stepsize, last + 1, spec.stepsize))
    elif spec.lr_policy == "fixed":
        inner = []
    else:
        inner = [spec.max_iter * quarter // 4 for quarter in (1, 2, 3)]
    clocks = sorted({0, last, *(clock for clock in inner if clock <= last)})
    return clocks if len(clocks) <= MAX_RATE_POINTS else [*clocks[: MAX_RATE_POINTS - 1], last]
