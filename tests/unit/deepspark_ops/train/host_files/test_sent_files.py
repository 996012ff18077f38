"""Files of workers reach the run's folder on the driver: outputs in the run and at the end, notes at a new start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deepspark_ops.driver_files.file_server import FileServer, SharedFolders
from deepspark_ops.stores.store_path import on_driver, use_driver_store
from deepspark_ops.train.host_files.on_host import FILE_SERVER, DriverFiles
from deepspark_ops.train.host_files.sent_files import SentFiles, files_sent, share_notes
from tests.processes import wait_until


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "copy" / "outputs" / "train").mkdir(parents=True)
    return tmp_path / "copy"


@pytest.fixture
def files(run: Path) -> Iterator[DriverFiles]:
    server = FileServer(
        SharedFolders((), (run / "outputs", run / "work")), "127.0.0.1", 0, protection="mac", timeout_s=60.0
    )
    driver_files = DriverFiles.of_task({FILE_SERVER: server.address.to_plain()}, str(run))
    assert driver_files is not None
    yield driver_files
    server.stop()
    use_driver_store(None)


def test_a_changed_file_is_sent_while_the_worker_trains_and_a_temporary_file_never(
    files: DriverFiles, run: Path, copy: Path
) -> None:
    output = copy / "outputs" / "train" / "o.h5"
    sender = SentFiles({copy / "outputs": on_driver(run / "outputs")}, pause_s=0.01)
    received = run / "outputs" / "train" / "o.h5"
    (output.parent / ".o.h5.part.tmp").write_text("half")
    for content in ("first", "second, longer"):
        output.write_text(content)
        wait_until(lambda content=content: received.is_file() and received.read_text() == content, content)
    output.write_text("last")
    assert sender.finish() == ""
    assert received.read_text() == "last"
    assert [path.name for path in received.parent.iterdir()] == ["o.h5"]


def test_files_that_cannot_be_sent_are_named_at_the_end_and_sent_when_the_cause_is_gone(
    files: DriverFiles, run: Path, copy: Path
) -> None:
    (copy / "outputs" / "train" / "o.h5").write_text("content")
    run.mkdir()
    (run / "outputs").write_text("a file in place of the folder")
    warnings: list[str] = []
    with files_sent(files, copy, [copy / "outputs"], warnings.append):
        pass
    (warning,) = warnings
    assert f"{copy}/outputs/train/o.h5 on " in warning
    assert warning.endswith("is not in the run's folder: Not a directory (the driver's disk)")
    (run / "outputs").unlink()
    with files_sent(files, copy, [copy / "outputs"], warnings.append):
        pass
    assert (run / "outputs" / "train" / "o.h5").read_text() == "content"
    assert len(warnings) == 1


def test_a_host_that_sees_the_runs_folder_sends_nothing(files: DriverFiles, run: Path, copy: Path) -> None:
    (copy / "outputs" / "o.h5").write_text("content")
    for seeing in (None, DriverFiles(files.address)):
        with files_sent(seeing, copy, [copy / "outputs"], pytest.fail):
            pass
    assert not run.exists()
    assert DriverFiles.of_task({}, None) is None


def test_the_note_of_a_dead_process_goes_by_the_driver_to_the_next_host(
    files: DriverFiles, run: Path, copy: Path, tmp_path: Path
) -> None:
    notes = [Path("work", "faults", f"worker_0.{kind}") for kind in ("fault", "reads")]
    share_notes(files, copy, [copy / note for note in notes])  # neither side has notes
    assert not any((copy / note).exists() for note in notes)
    for note in notes:
        (copy / note).write_text(note.name)
    share_notes(files, copy, [copy / note for note in notes])
    next_host = tmp_path / "next"
    share_notes(files, next_host, [next_host / note for note in notes])
    assert [(folder / note).read_text() for folder in (run, next_host) for note in notes] == [
        "worker_0.fault", "worker_0.reads", "worker_0.fault", "worker_0.reads",
    ]  # fmt: skip
