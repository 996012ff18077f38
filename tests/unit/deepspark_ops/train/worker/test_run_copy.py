"""The run's small files on a host that does not see the run's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepspark_ops.train.worker.run_copy import with_folder_on_host, write_mark


def settings(root: Path) -> dict[str, object]:
    return {
        "run_dir": str(root), "work": str(root / "work"), "start_state": str(root / "snapshots" / "a.state.h5"),
        "mark": write_mark(root / "work"), "n_workers": 2,
        "files": {
            "solver.prototxt": f'net: "{root}/net.prototxt"\nsnapshot_prefix: "{root}/snapshots/a"\n'.encode(),
            "net.prototxt": f'source: "{root}-data/train"\nmean_file: "{root}/sources/mean"\n'.encode(),
            "config.json": f'{{"run_dir": "{root}", "placement": "{root}/placement.txt"}}'.encode(),
            "sources/mean": f'"{root}/ is data'.encode(), "snapshots/a.state.h5": b"state",
        },
    }  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "run" / "work").mkdir(parents=True)
    return tmp_path / "run"


def test_a_host_that_sees_the_runs_folder_uses_it(root: Path, tmp_path: Path) -> None:
    run_settings = settings(root)
    assert with_folder_on_host(run_settings, tmp_path / "executor") is run_settings
    assert with_folder_on_host({"work": "/nowhere"}, tmp_path / "executor") == {"work": "/nowhere"}
    assert not (tmp_path / "executor").exists()


@pytest.mark.parametrize("is_there", [False, True], ids=["no folder", "a folder of another run"])
def test_another_host_gets_a_copy_with_its_own_paths(root: Path, tmp_path: Path, is_there: bool) -> None:
    run_settings = settings(root)
    if is_there:
        write_mark(root / "work")
    else:
        root.rename(tmp_path / "elsewhere")
    local = with_folder_on_host(run_settings, tmp_path / "executor")
    copy = Path(str(local["run_dir"]))
    assert copy.parent == tmp_path / "executor"
    assert (local["work"], local["n_workers"]) == (str(copy / "work"), 2)
    assert (copy / "work").is_dir()
    assert Path(str(local["start_state"])).read_bytes() == b"state"
    assert Path(str(local["start_state"])).is_relative_to(copy)
    assert (
        copy / "solver.prototxt"
    ).read_text() == f'net: "{copy}/net.prototxt"\nsnapshot_prefix: "{copy}/snapshots/a"\n'
    assert (copy / "net.prototxt").read_text() == f'source: "{root}-data/train"\nmean_file: "{copy}/sources/mean"\n'
    assert (copy / "config.json").read_text() == f'{{"run_dir": "{root}", "placement": "{copy}/placement.txt"}}'
    assert (copy / "sources" / "mean").read_bytes() == f'"{root}/ is data'.encode()
    assert with_folder_on_host(run_settings, tmp_path / "executor") == local, "another worker of the executor"
    assert [path for path in copy.rglob("*") if path.suffix == ".tmp"] == []


def test_a_start_state_too_large_for_the_task_keeps_its_path(root: Path, tmp_path: Path) -> None:
    run_settings = settings(root)
    files = {name: content for name, content in run_settings["files"].items() if not name.endswith(".h5")}
    root.rename(tmp_path / "elsewhere")
    local = with_folder_on_host({**run_settings, "files": files}, tmp_path)
    assert local["start_state"] == run_settings["start_state"]
