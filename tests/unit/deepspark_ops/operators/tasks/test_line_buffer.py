"""A stage goes on while nobody reads the log of its task, and nothing of what matters is lost."""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path

from deepspark_ops.operators.tasks.line_buffer import LineBuffer
from deepspark_ops.operators.tasks.task_lines import TaskLines
from deepspark_ops.processes.spark_submit import run_command

INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR
WAIT_S = 60.0


class Reader:
    """Writes lines only while it may."""

    def __init__(self) -> None:
        self.may_write = threading.Event()
        self.began = threading.Event()
        self.lines: list[tuple[int, str]] = []

    def write(self, level: int, text: str) -> None:
        self.began.set()
        assert self.may_write.wait(WAIT_S)
        self.lines.append((level, text))


def test_lines_without_room_are_counted_where_they_lack_and_warnings_stay() -> None:
    reader = Reader()
    buffer = LineBuffer(reader.write, kept=3, warnings_kept=2)
    buffer.line(INFO, "first")
    assert reader.began.wait(WAIT_S)  # it is out of the buffer, and waits to be written
    for number in range(5):
        buffer.line(INFO, f"line {number}")
    buffer.line(WARNING, "slow disk")
    for number in range(5, 8):
        buffer.line(INFO, f"line {number}")
    assert not buffer.end(within_s=0.01)
    reader.may_write.set()
    assert buffer.end(WAIT_S)
    texts = [text.split(" left out")[0] for _, text in reader.lines]
    assert texts == ["first", "line 0", "line 1", "line 2", "2 lines are", "slow disk", "3 lines are"]
    assert [level for level, _ in reader.lines][4:] == [WARNING] * 3
    assert "events.jsonl" in reader.lines[4][1]


def test_warnings_have_a_bound_too() -> None:
    reader = Reader()
    buffer = LineBuffer(reader.write, kept=1, warnings_kept=1)
    buffer.line(INFO, "first")
    assert reader.began.wait(WAIT_S)
    for number in range(9):
        buffer.line(ERROR, f"error {number}")
    reader.may_write.set()
    assert buffer.end(WAIT_S)
    assert [text.split(" left out")[0] for _, text in reader.lines] == ["first", "error 0", "error 1", "7 lines are"]


def test_a_stage_runs_to_its_end_while_nobody_reads_the_log_of_its_task(tmp_path: Path) -> None:
    """The log is a full pipe, like an Airflow task's log while its supervisor waits for the API server."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    log = logging.Logger("task")
    with os.fdopen(writing, "w") as pipe:
        log.addHandler(logging.StreamHandler(pipe))
        lines = TaskLines(log)
        buffer = LineBuffer(lines.line)
        end_mark = tmp_path / "done"
        code = (
            "import sys, pathlib\n"
            "for n in range(20000): sys.stderr.write(f'INFO: worker 0 loss clock={n} loss=0.123456789\\n')\n"
            f"pathlib.Path({str(end_mark)!r}).touch()\n"
        )
        run_command([sys.executable, "-c", code], stage="train", on_line=buffer.line)
        assert end_mark.exists()
        assert not buffer.end(within_s=0.01)
        pieces: list[bytes] = []
        reader = threading.Thread(target=lambda: pieces.extend(iter(lambda: os.read(reading, 65536), b"")))
        reader.start()
        assert buffer.end(WAIT_S)
    reader.join(WAIT_S)
    os.close(reading)
    text = b"".join(pieces).decode().lstrip("x").splitlines()
    loss_lines = [line for line in text if line.startswith("worker 0 loss")]
    assert loss_lines[0] == "worker 0 loss clock=0 loss=0.123456789"
    assert len(loss_lines) >= 10_000
    assert f"{20_000 - len(loss_lines)} lines are left out" in text[-1]
