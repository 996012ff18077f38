"""The Python functions: loaded late, arguments out of the config models, and one class for mistakes."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import deepspark_ops as ds
from deepspark_ops.api.results.run import Run
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.config.commands.predict import PredictConfig
from deepspark_ops.config.flat_fields import flat_fields
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.run_label import RunLabelConfig
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.ingest.sources.registry import resolve_format
from tests.paths import ROOT
from tests.unit.caffe_import.test_extras import run_without

FUNCTIONS = ("check", "compare", "convert", "evaluate", "export", "ingest", "pack", "predict", "simulate", "train")
STUB = ROOT / "deepspark_ops" / "api" / "calls.pyi"


def run_python(code: str) -> str:
    completed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_import_loads_nothing_and_takes_less_than_a_tenth_of_a_second() -> None:
    code = """
import sys, time
before, began = set(sys.modules), time.process_time()
import deepspark_ops as ds
seconds = time.process_time() - began
print(seconds, *sorted(set(sys.modules) - before))
"""
    seconds, *modules = run_python(code).split()
    assert float(seconds) < 0.1
    packages = {f"deepspark_ops.{name}" for name in ("evaluate", "export", "ingest", "predict", "train")}
    assert {name for name in modules if "deepspark" in name} == {"deepspark_ops", *packages}
    assert {"numpy", "pydantic", "rich", "tensorflow"}.isdisjoint(modules)


@pytest.mark.slow
def test_functions_stay_though_packages_of_their_names_are_imported() -> None:
    code = f"""
import deepspark_ops as ds
import deepspark_ops.train.worker.loop.loop, deepspark_ops.ingest.plan, deepspark_ops.export.manifest
from deepspark_ops.evaluate import metrics
from deepspark_ops.predict import record
print(*(callable(getattr(ds, name)) for name in {FUNCTIONS!r}))
print({{name for name in {FUNCTIONS!r}}} <= set(dir(ds)))
"""
    assert run_python(code).split() == ["True"] * (len(FUNCTIONS) + 1)


def test_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        ds.trian  # noqa: B018


def test_arguments_are_the_fields_of_the_config() -> None:
    parameters = inspect.signature(ds.train).parameters
    assert set(parameters) == {*flat_fields(TrainConfig), *RunLabelConfig.model_fields, "progress"}
    assert "named_files" not in parameters
    assert "confined" in parameters
    required = [name for name, parameter in parameters.items() if parameter.default is inspect.Parameter.empty]
    assert required == ["solver", "run_dir"]
    for name, parameter in parameters.items():
        if name in TrainConfig.model_fields and name not in required:
            assert parameter.default == TrainConfig.model_fields[name].default, name
    assert set(inspect.signature(ds.check).parameters) == set(flat_fields(CheckConfig))
    assert list(inspect.signature(ds.predict).parameters)[:2] == ["bundle", "input"]
    assert "n_workers: Training processes, e.g. 4; 4..16: at least 4" in (ds.train.__doc__ or "")


@pytest.mark.parametrize("name", ["staging_size", "weights", "comm_period", "placement", "allowed_root", "dataset"])
def test_every_kind_of_value_that_the_type_names_is_taken(name: str, tmp_path: Path) -> None:
    from deepspark_ops.api.signatures import config_from_call

    cases = {
        "staging_size": [(10, 10), ("1KiB", 1024)],
        "weights": [("a", (Path("a"),)), (Path("a"), (Path("a"),)), (["a", Path("b")], (Path("a"), Path("b")))],
        "comm_period": [("auto", "auto"), (5, 5), ("1@0 10@20", "1@0 10@20")],
        "placement": [("auto", "auto"), ("file.txt", Path("file.txt"))],
        "allowed_root": [("a", (Path("a"),)), (["a", "b"], (Path("a"), Path("b")))],
        "dataset": [("a", Path("a")), (None, None)],
    }
    for value, expected in cases[name]:
        config = config_from_call(TrainConfig, {"solver": "s", "run_dir": "r", name: value})
        stored = config.named_files.allowed_root if name == "allowed_root" else getattr(config, name)
        if isinstance(expected, Path):
            expected = Path.cwd() / expected
        elif isinstance(expected, tuple):
            expected = tuple(Path.cwd() / path for path in expected)
        assert stored == expected


def test_results_of_stages_are_taken_for_paths(tmp_path: Path) -> None:
    from deepspark_ops.api.signatures import config_from_call

    (tmp_path / "config.json").write_text("{}")
    config = config_from_call(PredictConfig, {"bundle": Run(tmp_path), "input": "i", "output": Path("o")})
    assert config.bundle == tmp_path


MISTAKES = [
    (
        lambda: ds.train("a", run_dir="b", n_worker=3),
        r"n_worker=3: no such argument; the nearest is n_workers; known: s",
    ),
    (
        lambda: ds.train("a", run_dir="b", max_iter=3),
        r'max_iter=3: no such argument; max_iter is a field of the solver: give overrides="max_iter: VALUE"; known: s',
    ),
    (lambda: ds.train("a", run_dir="b", n_workers=0), r"n_workers=0: must be a whole number from 1 to 10000, a range"),
    (
        lambda: ds.train("a", run_dir="b", comm_period="x"),
        r"comm_period='x': must be auto, a whole number, or a schedule",
    ),
    (lambda: ds.train("a", run_dir="b", lock="no"), r"lock='no': Input should be 'none', 'striped' or 'full'"),
    (lambda: ds.train(run_dir="b"), r"solver: must be given: Caffe solver prototxt"),
    (lambda: ds.train("a", "b"), r"train: 'b': at most 1 by position \(solver\); name"),
    (lambda: ds.train("a", solver="b", run_dir="c"), r"solver='b': given by position, too, as 'a': give one"),
    (lambda: ds.evaluate("nowhere"), r"run_dir=.*nowhere: no such folder; give the folder"),
    (lambda: ds.check("nowhere.prototxt"), r"nowhere.prototxt: no such file"),
    (lambda: ds.compare("a", run_dir="b", strategies="easgd"), r"one trial, and nothing to compare it with"),
    (lambda: ds.compare("a", run_dir="b", workers=[1, 0]), r"workers=0: must be whole numbers from 1 to 10000"),
    (lambda: ds.open("nowhere"), r"folder=nowhere: no such folder; allowed: a folder with a dataset"),
    (lambda: ds.Run(ROOT), rf"folder={ROOT}: the folder holds no run; allowed: a folder that ds.train"),
    (lambda: ds.Dataset("nowhere"), r"folder=nowhere: no such folder; allowed: a folder that ds.ingest"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_a_mistake_names_argument_value_and_what_is_allowed(
    call: object, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert issubclass(ds.ConfigError, ValueError)
    with pytest.raises(ds.ConfigError, match=message):
        call()  # type: ignore[operator]
    assert list(tmp_path.iterdir()) == []


def test_a_stage_outside_the_main_thread_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    snapshots = tmp_path / "snapshots"
    snapshots.mkdir()
    (snapshots / "a_iter_1.caffemodel").write_bytes(b"")
    raised: list[BaseException] = []

    def evaluate() -> None:
        try:
            ds.convert("a", "b", output=tmp_path / "out", progress=False)
        except ds.ConfigError as error:
            raised.append(error)

    thread = threading.Thread(target=evaluate, name="other")
    thread.start()
    thread.join(60)
    assert "called from thread 'other'" in str(raised[0])
    assert "call it from the main thread" in str(raised[0])


WITHOUT_PACKAGES = """
import deepspark_ops as ds
run = ds.Run({folder!r})
run._repr_html_()
for use in (lambda: run.history, lambda: run.workers, run.plot):
    try:
        use()
    except ModuleNotFoundError as error:
        print(error)
"""


@pytest.mark.slow  # starts a process
def test_missing_package_of_a_table_or_figure_names_its_extra(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    completed = run_without({"pandas", "plotly"}, WITHOUT_PACKAGES.format(folder=str(tmp_path)))
    messages = completed.stdout.splitlines()
    assert [package in line for package, line in zip(("pandas", "pandas", "plotly"), messages, strict=True)] == [
        True
    ] * 3
    assert all("needs p" in line and 'pip install "deepspark[notebook]"' in line for line in messages)


@pytest.mark.parametrize(
    ("rows", "words", "path"),
    [
        ({"frame": pd.DataFrame({"x": [1.5], "label": [0]})}, "source: a pandas DataFrame, but", "rows.parquet"),
        ({"table": pa.table({"x": [1.5], "label": [0]})}, "source: a pyarrow Table, but", "rows.parquet"),
        ({"array": np.zeros((3, 2)), "labels": [0, 1, 0]}, "source: a numpy ndarray, but", "rows.h5"),
        ({"frame": type("DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe"})()}, "a pyspark Data", "rows"),
    ],
)
def test_rows_in_memory_are_refused_with_the_lines_that_write_and_name_a_file(rows, words, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ds.ConfigError, match=words) as refused:
        ds.ingest(next(iter(rows.values())), "datasets/rows")
    writer, argument = (line.strip() for line in str(refused.value).splitlines()[1:])
    assert argument == f'source="{path}"'
    if path == "rows":
        assert writer == 'frame.write.parquet("rows")'
    else:
        exec(writer, {"h5py": h5py, "pyarrow": pyarrow, **rows})
        assert resolve_format(IngestConfig(source=Path(path), output="out"), Path(path)) in ("parquet", "hdf5")
    with pytest.raises(ds.ConfigError, match=f'dataset=ds.ingest."{path}", "datasets/rows".'):
        ds.train("solver.prototxt", dataset=next(iter(rows.values())), run_dir="run")
