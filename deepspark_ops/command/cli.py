"""The ``deepspark`` command: every stage without Airflow.

Options are made from the config models (``command_options.py``). Stages are imported when they run, so ``--help``
loads neither TensorFlow nor Spark. Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from caffe_import.extras import require
from caffe_import.tensorflow_start import start_lines_dropped
from deepspark_ops.api import stages
from deepspark_ops.api.display.stage_display import StageDisplay
from deepspark_ops.command.caffe_files import model, upgrade
from deepspark_ops.command.data import data, print_dry_run
from deepspark_ops.command.models import models
from deepspark_ops.command.options import MainCommand, StageCommand, with_options
from deepspark_ops.command.reporting import print_text, print_view, reported_errors, write_json
from deepspark_ops.config.base import Config
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.clean import CleanConfig
from deepspark_ops.config.commands.compare import CompareTrainingsConfig
from deepspark_ops.config.commands.doctor import DoctorConfig
from deepspark_ops.config.commands.pack import PackConfig
from deepspark_ops.config.commands.plan import PlanConfig
from deepspark_ops.config.commands.predict import FeaturesConfig, PredictConfig
from deepspark_ops.config.commands.run_log import RunLogConfig
from deepspark_ops.config.commands.serve import ServeConfig
from deepspark_ops.config.commands.simulate import SimulateConfig
from deepspark_ops.config.commands.single_net import NetTestConfig, NetTimeConfig
from deepspark_ops.config.commands.train import NamedTrainConfig
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.shared_options.source_formats import SOURCE_FORMATS
from deepspark_ops.config.track import TrackConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.events import format_event, read_events
from deepspark_ops.processes.job_log import FAILED
from deepspark_ops.processes.stage_process import keep_imports
from deepspark_ops.run_paths import RunPaths, write_whole
from deepspark_ops.tracking.configured import TRACKING_URI, is_configured
from deepspark_ops.tracking.tell import tell

app = typer.Typer(
    name="deepspark",
    cls=MainCommand,
    help="Train Caffe nets on Spark with asynchronous elastic averaging, then score and export them.\n\n"
    "A run goes: check, ingest, train, evaluate, export.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
dags = typer.Typer(help="Add DeepSpark's DAGs to an existing Airflow.", no_args_is_help=True)
app.add_typer(dags, name="dags")
app.add_typer(models, name="models")
app.add_typer(model, name="model")
app.add_typer(data, name="data")
app.command("upgrade")(upgrade)


def main() -> None:
    """Entry point of the ``deepspark`` script."""
    keep_imports()
    app()


def stage_command(
    model: type[Config],
    *,
    name: str,
    positional: str | Sequence[str],
    flags: Mapping[str, str] | None = None,
    names: Mapping[str, Sequence[str]] | None = None,
    table: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the decorated function as a command; see ``with_options``.

    Its help ends with ``table``, one row per line.
    """

    def register(run: Callable[..., None]) -> Callable[..., None]:
        if table:
            rows = "\n".join(f"{word}: {line}" for word, line in table.items())
            run.__doc__ = f"{inspect.cleandoc(run.__doc__ or '')}\n\n\b\n{rows}"
        command = with_options(run, model, positional=positional, flags=flags, names=names)
        app.command(name, cls=StageCommand)(reported_errors()(command))
        return run

    return register


@stage_command(CheckConfig, name="check", positional="solver", flags={"json": "Print the report as JSON"})
def check(config: CheckConfig, *, json: bool) -> None:
    """Read a solver and its nets and report layers, shapes, cost and problems, before a cluster is needed."""
    from deepspark_ops.preflight.table import report_view

    report = stages.check(config)
    if json:
        sys.stdout.write(report.model_dump_json(indent=1) + "\n")
    else:
        print_view(report_view(report))
    if report.errors:
        raise ConfigError("\n".join(report.errors))


@stage_command(PlanConfig, name="plan", positional="solver", flags={"json": "Print the prediction as JSON"})
def plan(config: PlanConfig, *, json: bool) -> None:
    """Predict images/s, staleness, server load and time per epoch for 1 to 10,000 workers, and what to choose."""
    from deepspark_ops.planning.plan import make_plan
    from deepspark_ops.planning.plan_picture import write_plan_picture
    from deepspark_ops.planning.plan_view import plan_view

    report = make_plan(config)
    write_plan_picture(report, config.plot)
    if json:
        sys.stdout.write(report.model_dump_json(indent=1) + "\n")
    else:
        print_view(plan_view(report))


@stage_command(SimulateConfig, name="simulate", positional="solver", flags={"json": "Print the report as JSON"})
def simulate(config: SimulateConfig, *, json: bool) -> None:
    """Train with many virtual workers, for real, on this host's cores: accuracy against a cluster's virtual time."""
    from deepspark_ops.simulation.simulate import PAGE_FILE
    from deepspark_ops.simulation.view import simulation_view

    report = stages.simulate(config)
    if json:
        sys.stdout.write(report.model_dump_json(indent=1) + "\n")
    else:
        print_view(simulation_view(report))
        print_text(f"curves: {config.out / PAGE_FILE}")


@stage_command(
    IngestConfig,
    name="ingest",
    positional="source",
    flags={"dry_run": "Report on a sample, write nothing", "json": "With --dry-run, print the report as JSON"},
    table=SOURCE_FORMATS,
)
def ingest(config: IngestConfig, *, dry_run: bool, json: bool) -> None:
    """Convert raw files into shards that Caffe reads: OUTPUT/train and OUTPUT/test.

    The command detects the format of SOURCE; --source-format names the format.
    """
    if dry_run:
        from deepspark_ops.ingest.dry_run import dry_run as dry_run_report

        report = dry_run_report(config)
        if json:
            write_json(report)
        else:
            print_dry_run(report)
        return
    if json:
        msg = (
            "--json prints the report of --dry-run; an ingestion has none: give both, or see deepspark data show --json"
        )
        raise ConfigError(msg)
    print_text(f"dataset={stages.ingest(config)}")


@stage_command(NamedTrainConfig, name="train", positional="solver")
def train(config: NamedTrainConfig) -> None:
    """Train the solver's net with N workers that exchange parameters with a center.

    Ctrl-C and SIGTERM take a snapshot and stop; SIGHUP takes a snapshot and continues, as `caffe train` does.
    The same command resumes from the last snapshot. A second Ctrl-C ends the run at once.
    """
    run_dir = stages.train(
        config.training(), label=config.label, on_certificate=lambda path: print_text(f"parity={path}")
    )
    print_text(f"run={run_dir}")


@stage_command(EvaluateConfig, name="evaluate", positional="run_dir")
def evaluate(config: EvaluateConfig) -> None:
    """Score a run's last snapshot: metrics.json and report.html, a self-contained page."""
    from deepspark_ops.evaluate.metrics import METRICS_NAME, REPORT_NAME, read_metrics

    output = stages.evaluate(config)
    print_text(f"{read_metrics(output / METRICS_NAME).summary()} report={output / REPORT_NAME}")


@stage_command(ExportConfig, name="export", positional="run_dir")
def export(config: ExportConfig) -> None:
    """Write the bundle: SavedModel, .caffemodel, deploy.prototxt, labels, mean, metrics and a manifest, checked."""
    print_text(f"bundle={stages.export(config)}")


@stage_command(
    CompareTrainingsConfig,
    name="compare",
    positional="solver",
    flags={"json": "Print the table as JSON"},
    names={
        "strategies": ("--strategy", "--strategies"),
        "workers": ("--workers", "--n-workers"),
        "comm_periods": ("--comm-period", "--comm-periods"),
        "base_lrs": ("--base-lr", "--base-lrs"),
        # A list of one value is the single value.
        **dict.fromkeys(("strategy", "n_workers", "comm_period"), ()),
    },
)
def compare(config: CompareTrainingsConfig, *, json: bool) -> None:
    """Train in all combinations of the lists, one training after another, score each, and compare.

    After an interruption the same command trains the missing combinations. A failed training is a row with its reason.
    """
    from deepspark_ops.api.compare import compare_trainings
    from deepspark_ops.api.results.comparison import Comparison

    comparison = Comparison(compare_trainings(config))
    if json:
        sys.stdout.write(comparison.table.to_json())
    else:
        print_text("\n".join([*comparison.table.lines(), f"report={comparison.report}"]))


@stage_command(ConvertConfig, name="convert", positional=("net", "weights"))
def convert(config: ConvertConfig) -> None:
    """Write a checked bundle of a Caffe net and weights that were trained elsewhere."""
    print_text(f"bundle={stages.convert(config)}")


@stage_command(PredictConfig, name="predict", positional=("bundle", "input"))
def predict(config: PredictConfig) -> None:
    """Write a bundle's classes and scores for images, a list, a dataset or a table to a Parquet file, a row each."""
    print_text(f"predictions={stages.answer_inputs(config)}")


@stage_command(FeaturesConfig, name="features", positional=("bundle", "input"))
def features(config: FeaturesConfig) -> None:
    """Write the values of a bundle's blobs for images, a list, a dataset or a table to a Parquet file, a row each."""
    print_text(f"features={stages.answer_inputs(config)}")


@stage_command(ServeConfig, name="serve", positional="bundle")
def serve_bundle(config: ServeConfig) -> None:
    """Answer pictures and JSON by a bundle over HTTP until Ctrl-C or SIGTERM; GET / is a page for pictures."""
    from deepspark_ops.serve.start import limit_image_pixels, serve

    require("tensorflow", "fastapi", "uvicorn", part="deepspark serve")
    limit_image_pixels(config.max_image_pixels)
    _start_tensorflow("deepspark serve")
    serve(config, say=_print_now, warn=lambda text: typer.echo(f"warning: {text}", err=True))


@stage_command(NetTestConfig, name="test", positional="net", flags={"json": "Print the outputs as JSON"})
def test_net(config: NetTestConfig, *, json: bool) -> None:
    """Run a net with trained weights over data and print its outputs, mean over the batches; as `caffe test`."""
    from deepspark_ops.command.single_net_view import test_json, test_lines
    from deepspark_ops.single_net.mean_outputs import mean_outputs

    _start_tensorflow("deepspark test")
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("batches", total=None)
        outputs = mean_outputs(
            config, lambda n_done, n_batches: progress.update(task, completed=n_done, total=n_batches)
        )
    if json:
        write_json(test_json(outputs))
    else:
        print_text(test_lines(outputs))


@stage_command(NetTimeConfig, name="time", positional="net", flags={"json": "Print the times as JSON"})
def time_layers(config: NetTimeConfig, *, json: bool) -> None:
    """Time each layer of a net, forward and backward, with the kernels of training; as `caffe time`."""
    from deepspark_ops.command.single_net_view import time_json, time_summary, time_table
    from deepspark_ops.single_net.net_time import time_net

    _start_tensorflow("deepspark time")
    times = time_net(config)
    if json:
        write_json(time_json(times))
    else:
        print_view(time_table(times))
        print_text(time_summary(times))


@stage_command(RunLogConfig, name="log", positional="run_dir")
def log(config: RunLogConfig) -> None:
    """Print the events of a run, one per line; --caffe prints Caffe's log, for scripts that read such logs."""
    from deepspark_ops.run_view.caffe_log import caffe_log_lines

    run = RunPaths(config.run_dir)
    if not run.events.is_file():
        msg = f"run_dir={config.run_dir}: no {run.events.name} is there; give the folder of a run of deepspark train"
        raise ConfigError(msg)
    lines = caffe_log_lines(run) if config.caffe else map(format_event, read_events(run.events))
    if config.output is None:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return
    with write_whole(config.output) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    print_text(f"log={config.output}")


@stage_command(TrackConfig, name="track", positional="folder")
def track(config: TrackConfig) -> None:
    """Send a run or a model to the MLflow server of MLFLOW_TRACKING_URI, as the stages do automatically."""
    if not is_configured(os.environ):
        msg = f"{TRACKING_URI} is not set: give the address of an MLflow tracking server, e.g. http://127.0.0.1:5000"
        raise ConfigError(msg)
    with StageDisplay("track") as display:
        tell(config, display.line)


@stage_command(PackConfig, name="pack", positional=())
def pack(config: PackConfig) -> None:
    """Write an archive with Python and a worker's packages: Spark unpacks it on hosts that have neither.

    The last lines are the settings of a job with the archive, as for conf/spark-defaults.conf.
    """
    archive = stages.pack(config)
    print_text(f"archive={archive.path}: {archive.summary()}")
    for name, value in archive.settings().items():
        print_text(f"{name} {value}")


@stage_command(DoctorConfig, name="doctor", positional=(), flags={"json": "Print the checks as JSON"})
def doctor(config: DoctorConfig, *, json: bool) -> None:
    """Check whether this host, a Spark cluster and Airflow are fit for a run; exit code 1 if a run would fail.

    Runs a small Spark job; takes half a minute to a minute. Each finding has a remedy.
    """
    from deepspark_ops.command.doctor_view import doctor_view, summary
    from deepspark_ops.doctor.check import to_plain
    from deepspark_ops.doctor.run import run_doctor
    from deepspark_ops.local_airflow.folders import LocalFolders

    of_airflow = LocalFolders.find(os.environ, Path.cwd()).environment_if_used(os.environ)
    began = monotonic()
    checks = run_doctor(config, lambda text: typer.echo(text, err=True), airflow_environment=of_airflow)
    if json:
        write_json(to_plain(checks))
    else:
        print_view(doctor_view(checks))
        print_text(f"{summary(checks)}, in {monotonic() - began:.0f} s")
    if not all(check.ok for check in checks):
        raise typer.Exit(FAILED)


@stage_command(CleanConfig, name="clean", positional="home", flags={"json": "Print all runs and datasets as JSON"})
def clean_up(config: CleanConfig, *, json: bool) -> None:
    """List the runs and datasets that are no longer needed, with their sizes; --remove removes them."""
    from deepspark_ops.retention.clean import clean

    report = clean(config, on_step=lambda text: typer.echo(text, err=True))
    print_text(report.model_dump_json(indent=1) if json else "\n".join(report.lines()))


@app.command()
@reported_errors()
def ui(port: Annotated[int, typer.Option(min=1, max=65_535, help="Port on 127.0.0.1")] = 8080) -> None:
    """Run Airflow with DeepSpark's DAGs and its UI on this machine, until Ctrl-C."""
    from deepspark_ops.local_airflow.folders import LocalFolders
    from deepspark_ops.local_airflow.ui import run_ui

    require("airflow", "airflow.providers.apache.spark", part="deepspark ui")
    run_ui(LocalFolders.find(os.environ, Path.cwd()), port, _print_now)


@app.command()
@reported_errors()
def demo() -> None:
    """Train LeNet on handwritten digits through Airflow, from nothing to an exported model."""
    from deepspark_ops.local_airflow.demo import run_demo
    from deepspark_ops.local_airflow.folders import LocalFolders

    require("airflow", "airflow.providers.apache.spark", "pyspark", "tensorflow", part="deepspark demo")
    _print_now(run_demo(LocalFolders.find(os.environ, Path.cwd()), _print_now).summary())


@dags.command("install")
@reported_errors()
def install(folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Airflow's DAGs folder")]) -> None:
    """Write the DAG files, a few lines each; Airflow finds the pages through the plugin's entry point."""
    from deepspark_ops.local_airflow.dag_files import install_dags

    for path in install_dags(folder.absolute()):
        print_text(str(path))
    print_text(
        "Relative paths of a run start from the folder above Airflow's DAGs folder, and runs, datasets and models are "
        "made there; DEEPSPARK_ROOT and DEEPSPARK_HOME in Airflow's environment name other folders."
    )


def _start_tensorflow(part: str) -> None:
    """Load TensorFlow into this process without TensorFlow's own log lines."""
    require("tensorflow", part=part)
    with start_lines_dropped():
        from caffe_import.tf_graph.devices import n_gpus_seen

        n_gpus_seen()


def _print_now(text: str) -> None:
    """Print a line immediately, also to a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
