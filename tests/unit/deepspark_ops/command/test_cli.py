import io
import json
import logging
import resource
import subprocess
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from deepspark_ops.api import stages
from deepspark_ops.api.display import stage_display
from deepspark_ops.command import cli
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.config.ingest import IngestConfig, SourceConfig
from deepspark_ops.config.shared_options.named_files import ListedFiles, NamedFiles
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import TrainingFailed
from deepspark_ops.evaluate.tasks.classification import build_metrics
from deepspark_ops.events import append_event, make_event
from deepspark_ops.preflight.report import PreflightReport
from deepspark_ops.processes.job_log import StageFailed
from tests.reference.bundles import make_bundle
from tests.reference.command_line import invoke
from tests.unit.deepspark_ops.evaluate.test_metrics import SCORED, scores_of

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 10 snapshot_prefix: "x"'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    return tmp_path


@pytest.fixture
def jobs(monkeypatch):
    """Stages that the command would start, as (module, config)."""
    started = []

    def run_job(module, config, *, on_line, **_):
        started.append((module, config))
        on_line(logging.INFO, "worker 0 loss clock=5 loss=0.5")

    monkeypatch.setattr(stages, "run_job", run_job)
    monkeypatch.setattr(stages, "require_spark", lambda: None)
    return started


def has_snapshot(run):
    """Make a run with a snapshot, as far as a command looks before it starts the stage."""
    (run / "snapshots").mkdir(parents=True)
    for name in ("config.json", "snapshots/x_iter_1.caffemodel", "snapshots/x_iter_1.state.h5"):
        (run / name).touch()


# Each message is whole: what is wrong, with which value, and what is allowed or to be done.
COUNTS = "must be a whole number from 1 to 10000, a range like 4..16, or auto"
BAD_INPUT = [
    (
        ["check", "none.prototxt"],
        "{folder}/none.prototxt: no such file; give the solver's prototxt, relative to {folder} or absolute",
    ),
    (
        ["check", "no_net.prototxt"],
        "{folder}/no_net.prototxt: names no training net; give one of net, net_param, train_net, train_net_param",
    ),
    (
        ["check", "solver.prototxt", "--n-workers", "0"],
        f"n_workers=0: {COUNTS}",
    ),
    (
        ["check", "solver.prototxt", "--workers", "0"],
        f"n_workers=0: {COUNTS}",
    ),
    (
        ["train", "solver.prototxt", "--run-dir", "r", "--n-workers", "0"],
        f"n_workers=0: {COUNTS}",
    ),
    (
        ["train", "solver.prototxt", "--run-dir", "r", "--n-workers", "two"],
        f"n_workers='two': {COUNTS}",
    ),
    (
        ["train", "solver.prototxt", "--run-dir", "r", "--comm-period", "often"],
        "comm_period='often': must be auto, a whole number, or a schedule like 1@0 10@2000",
    ),
    (
        ["train", "solver.prototxt", "--run-dir", "r", "--moving-rate", "1.5"],
        "moving_rate=1.5: must be a number above 0, at most 1, or a schedule like 0.4@0 0.2@2000",
    ),
    (
        ["train", "solver.prototxt", "--run-dir", "r", "--weights", "a", "--resume", "b"],
        "weights=a and resume=b: give one; a solverstate brings its own weights",
    ),
    (
        ["train", "solver.prototxt", "--run-dir", "r", "--engine", "process", "--master", "yarn"],
        "engine=process, master=yarn: the workers of engine=process are processes of this host; use"
        " engine=spark, or leave master out",
    ),
    (
        ["train", "no_net.prototxt", "--run-dir", "r"],
        "{folder}/no_net.prototxt: names no training net; give one of net, net_param, train_net, train_net_param",
    ),
    (
        ["ingest", "list.txt", "--output", "o", "--resize-height", "8"],
        "resize_height=8, resize_width=0: give both or neither",
    ),
    (
        ["ingest", "pictures", "--output", "pictures"],
        "output=pictures: is the source, too; give another folder",
    ),
    (
        ["ingest", "pictures", "--output", "{folder}/pictures"],
        "output={folder}/pictures: is the source, too; give another folder",
    ),
    (
        ["ingest", "list.txt", "--output", "o", "--shard-format", "csv"],
        "shard_format='csv': Input should be 'lmdb' or 'hdf5'",
    ),
    (["evaluate", "run", "--split", "half"], "split='half': Input should be 'train', 'validation' or 'test'"),
    (["export", "run", "--check-samples", "0"], "check_samples=0: Input should be greater than or equal to 1"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_INPUT, ids=[" ".join(row[0]) for row in BAD_INPUT])
def test_bad_input_gives_one_message_and_exit_code_2(folder, jobs, arguments, message):
    (folder / "no_net.prototxt").write_text(SOLVER.replace('net: "net.prototxt"', ""))
    old_names = sorted(path.name for path in folder.iterdir())
    result = invoke(*(argument.replace("{folder}", str(folder)) for argument in arguments))
    assert result.stderr == f"error: {message.format(folder=folder)}\n"
    assert result.stdout == ""
    assert result.exit_code == 2
    assert jobs == []
    assert sorted(path.name for path in folder.iterdir()) == old_names


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (
            NET.replace("num_output", "num_outputs"),
            'net.prototxt:3:88: unknown field "num_outputs" in inner_product_param of layer "ip"',
        ),
        (
            NET.replace('"InnerProduct"', '"InnerProdukt"'),
            'no importer for layer type "InnerProdukt"; did you mean "InnerProduct"',
        ),
        (NET.replace('bottom: "data"', 'bottom: "dada"'), '"dada"'),
    ],
)
def test_broken_net_is_placed(folder, net, message):
    (folder / "net.prototxt").write_text(net)
    result = invoke("check", "solver.prototxt")
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_check_reports_what_it_can_and_fails_with_the_problems_last(folder):
    result = invoke("check", "solver.prototxt")
    assert result.exit_code == 2
    assert "reads no files; give an ingested dataset" in result.stderr


def test_check_takes_the_options_of_data_that_are_ingested_later(folder, monkeypatch):
    configs = []

    def run_check(config):
        configs.append(config)
        return PreflightReport(format_version=4, solver="s", nets=(), formats=(), work=None, problems=())

    monkeypatch.setattr("deepspark_ops.preflight.check.run_check", run_check)
    assert invoke("check", "solver.prototxt", "--source", "list.txt", "--gray", "--max-pixel", "16").exit_code == 0
    assert invoke("check", "solver.prototxt").exit_code == 0
    assert [config.ingest for config in configs] == [
        SourceConfig(source=folder / "list.txt", gray=True, max_pixel=16),
        None,
    ]
    lacking = invoke("check", "solver.prototxt", "--gray")
    described = SourceConfig.model_fields["source"].description
    assert (lacking.exit_code, lacking.stderr) == (2, f"error: source: must be given: {described}\n")


def test_check_as_json_is_one_document(folder):
    result = invoke("check", "solver.prototxt", "--json")
    report = json.loads(result.stdout)
    assert report["format_version"] == 4
    assert report["problems"][0]["severity"] == "error"
    assert result.exit_code == 2


def test_train_hands_every_option_to_the_job_with_absolute_paths(folder, jobs):
    result = invoke(
        "train",
        "solver.prototxt",
        "--run-dir",
        "runs/a",
        "--n-workers",
        "3",
        "--comm-period",
        "4",
        "--rate-scale",
        "2.5",
    )
    assert result.exit_code == 0, result.output
    ((module, config),) = jobs
    assert module == "deepspark_ops.train.driver.process_job"
    assert config == TrainConfig(
        solver=folder / "solver.prototxt", run_dir=folder / "runs/a", n_workers=3, comm_period=4, rate_scale=2.5
    )
    assert result.stdout == f"run={folder}/runs/a\n"


@pytest.mark.parametrize(
    ("options", "engine"),
    [
        ((), "process"),
        (("--master", "local[*]"), "spark"),
        (("--master", "spark://h:7077"), "spark"),
        (("--spark-ui",), "spark"),
        (("--engine", "spark"), "spark"),
        (("--engine", "process", "--master", "local[2]"), "process"),
    ],
)
def test_workers_are_processes_unless_spark_is_asked_for(folder, jobs, monkeypatch, options, engine):
    spark_checks = []
    monkeypatch.setattr(stages, "require_spark", lambda: spark_checks.append(True))
    result = invoke("train", "solver.prototxt", "--run-dir", "r", *options)
    assert result.exit_code == 0, result.output
    assert [module for module, _ in jobs] == [f"deepspark_ops.train.driver.{engine}_job"]
    assert bool(spark_checks) == (engine == "spark"), "neither Java nor pyspark is needed for processes"


@pytest.mark.parametrize("errors", [(), ("parity: case relu: failed",)])
def test_train_keeps_the_comparison_with_caffe_first(folder, jobs, monkeypatch, errors):
    checked = []
    monkeypatch.setattr(
        "deepspark_ops.preflight.check.run_check",
        lambda config: checked.append(config) or SimpleNamespace(errors=errors),
    )
    result = invoke("train", "solver.prototxt", "--run-dir", "r", "--parity", "--workers", "3")
    (config,) = checked
    assert (config.parity, config.run_dir, config.n_workers) == (True, folder / "r", 3)
    assert result.exit_code == (2 if errors else 0), result.output
    assert len(jobs) == (0 if errors else 1)


@pytest.mark.parametrize("began", [False, True])
def test_a_refused_run_leaves_no_certificate(folder, monkeypatch, began):
    def certify(config):
        config.run_dir.mkdir()
        (config.run_dir / "parity.json").touch()
        return SimpleNamespace(errors=())

    def run_job(module, config, *, on_line, **_):
        if began:
            (config.run_dir / "events.jsonl").touch()
        raise StageFailed("port taken", 2)

    monkeypatch.setattr("deepspark_ops.preflight.check.run_check", certify)
    monkeypatch.setattr(stages, "run_job", run_job)
    monkeypatch.setattr(stages, "require_spark", lambda: None)
    assert invoke("train", "solver.prototxt", "--run-dir", "r", "--parity").exit_code == 2
    assert (folder / "r").exists() == began


@pytest.fixture
def trainings(monkeypatch):
    """Configs of the trainings of a comparison; a training leaves a snapshot, an evaluation its metrics."""
    configs = []

    def run_job(module, config, *, on_line, **_):
        if isinstance(config, TrainConfig):
            configs.append(config)
            if config.strategy == "downpour":
                raise StageFailed("no slot", 1)
            has_snapshot(config.run_dir)
        else:
            (config.run_dir / "evaluation").mkdir()
            metrics = build_metrics(scores_of([[3, 1], [0, 4]]), SCORED, ()).to_json()
            (config.run_dir / "evaluation" / "metrics.json").write_text(metrics)

    monkeypatch.setattr(stages, "run_job", run_job)
    monkeypatch.setattr(stages, "require_spark", lambda: None)
    return configs


def test_compare_trains_all_combinations_of_its_lists_and_prints_their_rows(folder, trainings):
    command = ["compare", "solver.prototxt", "--run-dir", "runs/c", "--dataset", "data", "--order", "file"]
    result = invoke(*command, "--strategy", "easgd,downpour", "--workers", "2,4", "--comm-period", "5")
    assert result.exit_code == 0, result.output
    assert [(training.strategy, training.n_workers) for training in trainings] == [
        ("easgd", 2), ("easgd", 4), ("downpour", 2), ("downpour", 4),
    ]  # fmt: skip
    assert {(training.comm_period, training.order, training.dataset) for training in trainings} == {
        (5, "file", folder / "data")
    }
    assert [training.run_dir for training in trainings] == [
        folder / f"runs/c__trial_0{number}" for number in range(1, 5)
    ]
    *rows, report = result.stdout.splitlines()
    assert [row.partition(": ")[0] for row in rows] == [
        f"{s}, {n} workers" for s in ("easgd", "downpour") for n in (2, 4)
    ]
    assert rows[0] == "easgd, 2 workers: accuracy 87.5 %"
    assert rows[2] == "downpour, 2 workers: failed: no slot"
    assert report == f"report={folder}/runs/c/evaluation/report.html"
    assert (result.exit_code, (folder / "runs/c/evaluation/report.html").is_file()) == (0, True)
    trainings.clear()
    second_result = invoke(
        *command, "--strategies", "easgd,downpour", "--n-workers", "2,4", "--comm-period", "5", "--json"
    )
    assert [training.strategy for training in trainings] == ["downpour", "downpour"]  # finished trials stay
    assert [row["status"] for row in json.loads(second_result.stdout)["rows"]] == ["finished"] * 2 + ["failed"] * 2


def test_compare_refuses_one_trial_and_wrong_lists(folder, trainings):
    command = ["compare", "solver.prototxt", "--run-dir", "c"]
    for options, message in (
        ([], "there is one trial, and nothing to compare it with: give two or more values in one of"),
        (["--workers", "1,zero"], "workers='zero': must be whole numbers from 1 to 10000, commas between them"),
        (["--strategy", "easgd,foo"], 'trial 2, "foo": strategy "foo" is unknown; known: auto, '),
    ):
        result = invoke(*command, *options)
        assert (result.exit_code, result.stderr.startswith(f"error: {message}")) == (2, True), result.stderr
    assert trainings == []


def test_lines_of_the_job_go_to_stderr(folder, jobs):
    assert "worker 0 loss clock=5 loss=0.5\n" in invoke("train", "solver.prototxt", "--run-dir", "r").stderr


def test_train_on_a_terminal_draws_the_run_from_its_events(folder, monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=130, color_system=None)
    monkeypatch.setattr(stage_display, "Console", lambda **_: console)
    monkeypatch.setattr(stages, "require_spark", lambda: None)

    def run_job(module, config, *, on_line, **_):
        config.run_dir.mkdir()
        numbers = {"loss": 0.25, "learning_rate": 0.01, "images_per_s": 4321.0}
        append_event(config.run_dir / "events.jsonl", make_event("loss", clock=5, worker=0, **numbers))
        on_line(logging.INFO, "worker 0 loss clock=5/9 loss=0.25 lr=0.01 images/s=4321")
        on_line(logging.INFO, "driver clock=0: rate_scale 3")
        on_line(logging.ERROR, "an executor is gone")

    monkeypatch.setattr(stages, "run_job", run_job)
    assert invoke("train", "solver.prototxt", "--run-dir", "r").exit_code == 0
    shown = screen.getvalue()
    last = shown[shown.rindex("worker   clock") :]
    assert "4,321" in last
    assert "5 of 10 minibatches" in last
    assert "driver clock=0: rate_scale 3" in shown
    assert "an executor is gone" in shown
    assert "worker 0 loss" not in shown  # the table says it


def test_ingest_and_export_start_their_modules(folder, jobs):
    assert invoke("ingest", "a.tar::list.txt", "--output", "d", "--gray", "--no-shuffle").exit_code == 0
    has_snapshot(folder / "run")
    assert invoke("export", "run", "--check-samples", "5").exit_code == 0
    assert jobs == [
        (
            "deepspark_ops.ingest.spark_job",
            IngestConfig(source=folder / "a.tar::list.txt", output=folder / "d", gray=True, shuffle=False),
        ),
        ("deepspark_ops.export", ExportConfig(run_dir=folder / "run", check_samples=5)),
    ]


@pytest.mark.parametrize("command", ["evaluate", "export"])
def test_run_without_weights_starts_no_process(folder, jobs, command):
    result = invoke(command, "run")
    assert (result.exit_code, jobs) == (2, [])
    assert result.stderr.startswith(f"error: run_dir={folder}/run: no such folder; give the folder that ")
    has_snapshot(folder / "run")
    (folder / "run/snapshots/x_iter_1.state.h5").unlink()
    result = invoke(command, "run")
    assert (result.exit_code, jobs) == (2, [])
    assert result.stderr.startswith(f"error: run_dir={folder}/run: no snapshot in snapshots/; training has not")


@pytest.mark.parametrize(
    ("command", "further"), [("predict", []), ("features", ["--blobs", "fc1"])], ids=["predict", "features"]
)
def test_a_run_stands_for_its_bundle(folder, jobs, command, further):
    arguments = [command, "run", "pictures", "--output", "p.parquet", *further]
    (folder / "run").mkdir()
    (folder / "run" / "config.json").touch()
    assert invoke(*arguments).stderr == (
        f'error: bundle={folder}/run: a run without a bundle, it holds config.json; run "deepspark export'
        f' {folder}/run"\n'
    )
    make_bundle(folder / "run" / "bundle")
    assert invoke(*arguments).exit_code == 0
    assert [config.bundle for _, config in jobs] == [folder / "run" / "bundle"]
    evaluated = invoke("evaluate", "run/bundle")
    finding = f"run_dir={folder}/run/bundle: no config.json in it; give its run, {folder}/run"
    assert (evaluated.exit_code, evaluated.stderr) == (2, f"error: {finding}\n")


def test_a_model_in_place_of_a_version_is_refused_with_the_folder_of_versions(folder):
    arguments = ["predict", "run", "pictures", "--output", "p.parquet"]
    expected = f"error: {folder}/run: no manifest.json, so no complete bundle; "
    missing = expected.replace("manifest.json", "such folder")
    assert invoke(*arguments).stderr == f'{missing}run "deepspark export" first\n'
    (folder / "run").mkdir()
    assert invoke(*arguments).stderr == f'{expected}run "deepspark export" first\n'
    (folder / "run" / "versions").mkdir()
    in_production = f'deepspark models list --models {folder}, or in Python ds.Model("{folder}/run").production'
    assert invoke(*arguments).stderr == (
        f"{expected}give a version of the model, a folder in {folder}/run/versions; the version in production:"
        f" {in_production}\n"
    )


def test_evaluate_prints_the_figures(folder, jobs):
    has_snapshot(folder / "run")
    output = folder / "run" / "evaluation"
    output.mkdir(parents=True)
    (output / "metrics.json").write_text(build_metrics(scores_of([[3, 1], [0, 4]]), SCORED, ()).to_json())
    result = invoke("evaluate", "run")
    assert result.stdout == f"top1=0.8750 loss=0.5000 samples=8 report={output}/report.html\n"
    assert jobs == [("deepspark_ops.evaluate", EvaluateConfig(run_dir=folder / "run"))]
    jobs.clear()
    invoke("evaluate", "run", "--master", "local[2]")
    assert [module for module, _ in jobs] == ["deepspark_ops.evaluate.spark_job"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StageFailed("bad shard\nsecond line", 2), 2),
        (StageFailed("loss is nan", 1), 1),
        (StageFailed("killed", -9), 1),
        (TrainingFailed("nobody exchanged"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_failed_job_gives_its_message_once(folder, monkeypatch, error, code):
    def run_job(module, config, *, on_line, **_):
        for line in str(error).splitlines():
            on_line(logging.ERROR, line)
        raise error

    monkeypatch.setattr(stages, "run_job", run_job)
    monkeypatch.setattr(stages, "require_spark", lambda: None)
    result = invoke("train", "solver.prototxt", "--run-dir", "r")
    assert result.exit_code == code
    message = "interrupted" if isinstance(error, KeyboardInterrupt) else f"error: {error}"
    assert result.stderr == f"{message}\n"


def test_a_message_of_the_troubleshooting_list_is_printed_with_its_remedy(folder, monkeypatch):
    def run_job(module, config, **_):
        raise StageFailed("crop_size=9 is larger than the image, 8 x 8 pixels", 2)

    has_snapshot(folder / "run")
    monkeypatch.setattr(stages, "run_job", run_job)
    assert invoke("evaluate", "run").stderr == (
        "error: crop_size=9 is larger than the image, 8 x 8 pixels\n"
        "cause: images are smaller than the crop\nremedy: Resize at ingestion, or lower `crop_size`\n"
    )


@pytest.mark.parametrize("error", [None, StageFailed("loss is nan", 1), KeyboardInterrupt()])
def test_mlflow_is_told_of_a_run_however_its_stage_ends(folder, monkeypatch, error):
    tracked_runs = []

    def run_job(module, config, **_):
        append_event(config.run_dir / "events.jsonl", make_event("stage", stage="train", status="started"))
        if error:
            raise error

    (folder / "r").mkdir()
    monkeypatch.setattr(stages, "run_job", run_job)
    monkeypatch.setattr(stages, "require_spark", lambda: None)
    monkeypatch.setattr(stages, "tell_run", lambda run_dir, _: tracked_runs.append(run_dir))
    invoke("train", "solver.prototxt", "--run-dir", "r")
    assert tracked_runs == []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    has_snapshot(folder / "r")
    for command in (("train", "solver.prototxt", "--run-dir"), ("export",)):
        invoke(*command, "r")
    assert tracked_runs == [folder / "r"] * 2


def test_telling_by_hand_says_what_is_missing(folder, monkeypatch):
    result = invoke("track", "r")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: MLFLOW_TRACKING_URI is not set: give the address of an MLflow tracking server, e.g. "
        "http://127.0.0.1:5000\n",
    )
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    monkeypatch.setattr("caffe_import.extras.find_spec", lambda name: None)
    result = invoke("track", "r")
    assert result.exit_code == 2
    assert result.stderr.endswith('pip install "deepspark[mlflow]"\n')


def test_error_lines_that_the_message_does_not_repeat_are_shown(folder, monkeypatch):
    def run_job(module, config, *, on_line, **_):
        on_line(logging.ERROR, "Spark lost an executor")
        on_line(logging.INFO, "going on")
        raise StageFailed("loss is nan", 1)

    monkeypatch.setattr(stages, "run_job", run_job)
    monkeypatch.setattr(stages, "require_spark", lambda: None)
    result = invoke("train", "solver.prototxt", "--run-dir", "r")
    assert result.stderr == "Spark lost an executor\ngoing on\nerror: loss is nan\n"


@pytest.mark.parametrize("command", ["check", "plan", "ingest", "train", "evaluate", "export"])
def test_help_names_every_field_with_its_description(folder, command):
    config = {
        "check": cli.CheckConfig,
        "plan": cli.PlanConfig,
        "ingest": IngestConfig,
        "train": TrainConfig,
        "evaluate": EvaluateConfig,
        "export": ExportConfig,
    }[command]
    result = invoke(command, "--help")
    assert result.exit_code == 0
    shown = " ".join(result.stdout.replace("│", " ").split())
    # The fields of a config inside the config are options like the others.
    parts = ("ingest", "named_files", "listed_files")
    fields = {name: field for name, field in config.model_fields.items() if name not in parts}
    fields |= SourceConfig.model_fields if command == "check" else {}
    fields |= NamedFiles.model_fields if "named_files" in config.model_fields else {}
    fields |= ListedFiles.model_fields if "listed_files" in config.model_fields else {}
    for name, field in fields.items():
        assert f"--{name.replace('_', '-')}" in shown or name.upper() in shown
        assert field.description.split()[0] in shown


def test_help_shows_bounds_defaults_and_choices(folder):
    shown = " ".join(invoke("train", "--help").stdout.replace("│", " ").split())
    assert "Training processes, e.g. 4; 4..16: at least 4, more while there are slots" in shown
    assert "on a cluster (1 to 10000) [default: 2]" in shown
    assert "auto|shm|socket" in shown
    assert "Spark master [default: local[*]]" in shown


def test_help_is_quick_and_loads_no_framework():
    script = (
        "import sys\nfrom typer.testing import CliRunner\nfrom deepspark_ops.command import cli\n"
        "assert CliRunner().invoke(cli.app, ['train', '--help']).exit_code == 0\n"
        "heavy = ('tensorflow', 'keras', 'pyspark', 'airflow', 'mlflow', 'cv2')\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in heavy]"
    )
    assert any(_seconds(script) < 1.5 for _ in range(3))  # half of this time, if no neighbour shares the core's units


def _seconds(script):
    """Return the processor time of a fresh interpreter: wall time would measure the neighbours."""
    start_usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", script], check=True)
    end_usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end_usage.ru_utime + end_usage.ru_stime - start_usage.ru_utime - start_usage.ru_stime
