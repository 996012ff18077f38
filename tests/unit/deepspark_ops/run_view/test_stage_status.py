import json
import logging

from deepspark_ops.run_paths import RunPaths
from deepspark_ops.run_view.stage_status import StatusFile, read_statuses


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_stage_that_counts_is_noted_once_a_second_and_its_end_at_once(tmp_path) -> None:
    clock = Clock()
    file = StatusFile(tmp_path, "ingest", clock=clock)
    assert read_statuses(tmp_path)["ingest"].status == "running"
    file.line(logging.INFO, "ingest train: shard 1/20 written, 100 samples")
    assert read_statuses(tmp_path)["ingest"].total is None  # a second has not passed
    clock.now = 101.5
    file.line(logging.INFO, "ingest train: shard 2/20 written, 100 samples")
    status = read_statuses(tmp_path)["ingest"]
    assert (status.done, status.total, status.text[:25]) == (2, 20, "ingest train: shard 2/20 ")
    file.line(logging.INFO, "nothing that counts")
    file.end("failed", "no such file: x.png")
    status = read_statuses(tmp_path)["ingest"]
    assert (status.status, status.message, status.began, status.time) == ("failed", "no such file: x.png", 100.0, 101.5)


def test_the_last_warnings_are_kept(tmp_path) -> None:
    file = StatusFile(tmp_path, "train", clock=Clock())
    for number in range(30):
        file.line(logging.WARNING, f"warning {number}")
    file.line(logging.ERROR, "the message comes with the end")
    file.end("finished")
    warnings = read_statuses(tmp_path)["train"].warnings
    assert [text for _, text in warnings] == [f"warning {number}" for number in range(20, 30)]


def test_a_damaged_file_and_one_of_another_version_count_as_missing(tmp_path) -> None:
    for stage in ("check", "ingest", "train", "export"):
        StatusFile(tmp_path, stage).end("finished")
    paths = RunPaths(tmp_path)
    paths.stage_status("check").write_text("{")
    for stage, change in (("ingest", {"format_version": 99}), ("train", {"unknown": 1})):
        path = paths.stage_status(stage)
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert list(read_statuses(tmp_path)) == ["export"]
    assert read_statuses(tmp_path / "missing") == {}


def test_the_task_is_noted_and_a_file_of_the_first_version_is_read_without_one(tmp_path) -> None:
    StatusFile(tmp_path, "train", task="fit", map_index=3).end("finished")
    path = RunPaths(tmp_path).stage_status("train")
    status = read_statuses(tmp_path)["train"]
    assert (status.task, status.map_index) == ("fit", 3)
    fields = json.loads(path.read_text()) | {"format_version": 1}
    path.write_text(json.dumps({name: value for name, value in fields.items() if name not in ("task", "map_index")}))
    status = read_statuses(tmp_path)["train"]
    assert (status.status, status.task, status.map_index) == ("finished", "", -1)


def test_a_folder_that_cannot_be_written_does_not_end_the_stage(tmp_path) -> None:
    (tmp_path / "stages").write_text("a file in the way")
    StatusFile(tmp_path, "check").end("finished")
    assert read_statuses(tmp_path) == {}
