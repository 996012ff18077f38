"""A function per stage, from the config to the written files, for the command line, the Python API and operators.

A stage with TensorFlow or a JVM runs as a separate process. Call these functions from the main thread: the thread's
signals reach the stage. Ctrl-C on ``train`` takes a snapshot and ends the run.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from caffe_import.extras import require
from deepspark_ops.api.display.stage_display import StageDisplay, TrainDisplay, show_telling
from deepspark_ops.config.base import StageConfig
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.commands.pack import PackConfig
from deepspark_ops.config.commands.predict import BundleInputConfig, FeaturesConfig
from deepspark_ops.config.commands.simulate import SimulateConfig
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.found_weights import find_weights
from deepspark_ops.export.manifest import find_bundle, parse_manifest
from deepspark_ops.processes.job_log import StageFailed
from deepspark_ops.processes.spark_submit import require_spark, run_job
from deepspark_ops.processes.worker_archive import WorkerArchive, write_worker_archive
from deepspark_ops.run_label.label import label_run
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.stores.store_path import DataPath
from deepspark_ops.tracking.tell import tell_run

NO_LABEL = RunLabelConfig()
Runner = Callable[[str, StageConfig], None]
"""Runs the module of a stage with a config to its end; an operator has a runner of its own, with a task's log."""
if TYPE_CHECKING:
    from deepspark_ops.preflight.report import PreflightReport
    from deepspark_ops.simulation.report import SimulationReport


def check(config: CheckConfig) -> PreflightReport:
    """Return the report on a solver and its nets; the report has the errors."""
    from deepspark_ops.preflight.check import run_check

    return run_check(config)


def ingest(config: IngestConfig, *, is_shown: bool = True) -> DataPath:
    """Ingest raw data and return the dataset's folder."""
    require_spark()
    _run_process("deepspark_ops.ingest.spark_job", config, StageDisplay("ingest", is_shown=is_shown))
    return config.output


def train(
    config: TrainConfig,
    *,
    label: RunLabelConfig = NO_LABEL,
    is_shown: bool = True,
    on_certificate: Callable[[Path], None] = lambda path: None,
) -> Path:
    """Train and return the run's folder.

    Args:
        config: The training.
        label: Name and tags of the run.
        is_shown: Whether the run is drawn while it trains.
        on_certificate: Called with ``parity.json`` once the comparison with Caffe, if one is asked for, has passed.
    """
    from caffe_import.solver.loaded_solver import load_solver
    from deepspark_ops.processes.named_files import limit_named_files

    # The stage itself warns of files outside the allowed folders.
    limit_named_files(config.named_files, (config.solver.parent, config.dataset), warn=lambda finding: None)
    max_iter = load_solver(config.solver, config.overrides).spec.max_iter
    if config.is_in_spark:
        require_spark()
    module = "deepspark_ops.train.driver." + ("spark_job" if config.is_in_spark else "process_job")
    was_there = config.run_dir.exists()
    if config.parity:
        _certify(config)
        on_certificate(RunPaths(config.run_dir).parity)
    label_run(config.run_dir, label)
    display = TrainDisplay(config.run_dir, max_iter=max_iter, is_shown=is_shown)
    try:
        _run_process(module, config, display, run_dir=config.run_dir, answers_signals=True)
    except StageFailed:
        paths = RunPaths(config.run_dir)
        if not was_there and paths.root.is_dir() and set(paths.root.iterdir()) <= {paths.parity, paths.label}:
            shutil.rmtree(config.run_dir)  # the run was refused: certificate and label are of no run
        raise
    return config.run_dir


def _certify(config: TrainConfig) -> None:
    """Keep the comparison with recorded outputs of Caffe in the run's folder, before anything is trained.

    Raises:
        ConfigError: The solver has errors, or a case failed.
    """
    report = check(CheckConfig(**{name: value for name, value in config if name in CheckConfig.model_fields}))
    if report.errors:
        raise ConfigError("\n".join(report.errors))


def evaluate(config: EvaluateConfig, *, is_shown: bool = True, run: Runner | None = None) -> Path:
    """Score a run and return the folder of metrics and report."""
    find_weights(RunPaths(config.run_dir), config.weights)
    if config.is_in_spark and run is None:
        require_spark()
    module = "deepspark_ops.evaluate.spark_job" if config.is_in_spark else "deepspark_ops.evaluate"
    _run_process(module, config, StageDisplay("evaluate", is_shown=is_shown), run_dir=config.run_dir, run=run)
    return config.output or RunPaths(config.run_dir).evaluation


def export(config: ExportConfig, *, is_shown: bool = True, run: Runner | None = None) -> Path:
    """Export a run and return the bundle's folder."""
    find_weights(RunPaths(config.run_dir), config.weights)
    display = StageDisplay("export", is_shown=is_shown)
    _run_process("deepspark_ops.export", config, display, run_dir=config.run_dir, run=run)
    return config.output or RunPaths(config.run_dir).bundle


def convert(config: ConvertConfig, *, is_shown: bool = True, run: Runner | None = None) -> Path:
    """Make a bundle of a net and weights from another training, and return the bundle's folder."""
    _run_process("deepspark_ops.export.convert", config, StageDisplay("convert", is_shown=is_shown), run=run)
    return config.output


def answer_inputs(config: BundleInputConfig, *, is_shown: bool = True, run: Runner | None = None) -> DataPath:
    """Write a bundle's predictions, or the config's features, and return the file."""
    config = config.model_copy(update={"bundle": find_bundle(config.bundle)})
    parse_manifest(config.bundle)
    if config.needs_spark and run is None:
        require_spark()
    module = "deepspark_ops.predict.spark_job" if config.needs_spark else "deepspark_ops.predict"
    title = "features" if isinstance(config, FeaturesConfig) else "predict"
    _run_process(module, config, StageDisplay(title, is_shown=is_shown), run=run)
    return config.output


def pack(config: PackConfig, *, is_shown: bool = True) -> WorkerArchive:
    """Write the archive with the environment of a Spark worker, and return its description."""
    with StageDisplay("pack", is_shown=is_shown):
        return write_worker_archive(config)


def simulate(config: SimulateConfig, *, is_shown: bool = True) -> SimulationReport:
    """Train with virtual workers, a process for each run, and return the report; ``config.out`` has files of it."""
    from deepspark_ops.simulation.simulate import run_simulation

    require("tensorflow", part="deepspark simulate")
    _require_main_thread("simulate")
    with StageDisplay("runs", is_shown=is_shown) as display:
        return run_simulation(config, display.count)


def _run_process(
    module: str,
    config: StageConfig,
    display: StageDisplay,
    *,
    run_dir: Path | None = None,
    answers_signals: bool = False,
    run: Runner | None = None,
) -> None:
    """Run a stage, and tell MLflow of its run, also after a failure. A caller's runner does both itself."""
    if run is not None:
        run(module, config)
        return
    _require_main_thread(module)
    try:
        with display:
            run_job(module, config, on_line=display.line, answers_signals=answers_signals)
    finally:
        if run_dir is not None and RunPaths(run_dir).events.is_file():
            show_telling(tell_run, run_dir, is_shown=display.is_shown)


def _require_main_thread(stage: str) -> None:
    if threading.current_thread() is not threading.main_thread():
        msg = (
            f"{stage}: called from thread {threading.current_thread().name!r}; a stage's process ends with the thread"
            " that starts it and gets the signals of the main thread: call it from the main thread"
        )
        raise ConfigError(msg)
