"""The stages as Python functions: ``ds.train(solver, run_dir=..., n_workers=4)``.

``make format`` writes ``calls.pyi`` beside this file, for editors and mypy.
"""

from __future__ import annotations

from deepspark_ops.api import stages
from deepspark_ops.api.compare import compare_trainings
from deepspark_ops.api.results.bundle import Bundle
from deepspark_ops.api.results.check_report import CheckReport
from deepspark_ops.api.results.comparison import Comparison
from deepspark_ops.api.results.dataset import Dataset
from deepspark_ops.api.results.evaluation import Evaluation
from deepspark_ops.api.results.predictions import Predictions
from deepspark_ops.api.results.run import Run
from deepspark_ops.api.results.simulation import Simulation
from deepspark_ops.api.signatures import stage_function
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.commands.compare import CompareTrainingsConfig
from deepspark_ops.config.commands.pack import PackConfig
from deepspark_ops.config.commands.predict import PredictConfig
from deepspark_ops.config.commands.simulate import SimulateConfig
from deepspark_ops.config.commands.train import NamedTrainConfig
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.processes.worker_archive import WorkerArchive


@stage_function(CheckConfig, positional=("solver",), shows_progress=False)
def check(config: CheckConfig) -> CheckReport:
    """Read a solver and its nets and report layers, shapes, cost and problems."""
    return CheckReport(stages.check(config))


@stage_function(IngestConfig, positional=("source", "output"))
def ingest(config: IngestConfig, *, is_shown: bool) -> Dataset:
    """Turn raw files into shards that Caffe reads."""
    return Dataset(stages.ingest(config, is_shown=is_shown))


@stage_function(NamedTrainConfig, positional=("solver",))
def train(config: NamedTrainConfig, *, is_shown: bool) -> Run:
    """Train the solver's net with N workers that exchange parameters with a center.

    Ctrl-C and a notebook's interrupt take a snapshot and end the run; the same call goes on from the last snapshot.
    """
    return Run(stages.train(config.training(), label=config.label, is_shown=is_shown))


@stage_function(EvaluateConfig, positional=("run_dir",))
def evaluate(config: EvaluateConfig, *, is_shown: bool) -> Evaluation:
    """Score a run's last snapshot."""
    return Evaluation(stages.evaluate(config, is_shown=is_shown))


@stage_function(ExportConfig, positional=("run_dir",))
def export(config: ExportConfig, *, is_shown: bool) -> Bundle:
    """Write a run's bundle: SavedModel, Keras, ONNX, Caffe's files, labels and a manifest, checked."""
    return Bundle(stages.export(config, is_shown=is_shown))


@stage_function(ConvertConfig, positional=("net", "weights", "output"))
def convert(config: ConvertConfig, *, is_shown: bool) -> Bundle:
    """Make a checked bundle of a Caffe net and weights that were trained elsewhere."""
    return Bundle(stages.convert(config, is_shown=is_shown))


@stage_function(PredictConfig, positional=("bundle", "input", "output"))
def predict(config: PredictConfig, *, is_shown: bool) -> Predictions:
    """Write a bundle's classes and scores for images, a list, a dataset or a table to a Parquet file, a row each."""
    return Predictions(stages.answer_inputs(config, is_shown=is_shown))


@stage_function(CompareTrainingsConfig, positional=("solver",))
def compare(config: CompareTrainingsConfig, *, is_shown: bool) -> Comparison:
    """Train in all combinations of the lists, one training after another, score each, and compare."""
    return Comparison(compare_trainings(config, is_shown=is_shown))


@stage_function(SimulateConfig, positional=("solver",))
def simulate(config: SimulateConfig, *, is_shown: bool) -> Simulation:
    """Train with many virtual workers, for real, on this host's cores: accuracy against a cluster's virtual time."""
    stages.simulate(config, is_shown=is_shown)
    return Simulation(config.out)


@stage_function(PackConfig, positional=("output",))
def pack(config: PackConfig, *, is_shown: bool) -> WorkerArchive:
    """Write an archive with the environment of a Spark worker; ``settings()`` are the properties of a job with it."""
    return stages.pack(config, is_shown=is_shown)
