from __future__ import annotations

import errno
import logging
import sys
from pathlib import Path

import pytest

from deepspark_ops.errors import ConfigError, TrainingFailed
from deepspark_ops.processes.job_log import StageFailed
from deepspark_ops.processes.spark_submit import run_command
from deepspark_ops.processes.stage_process import file_trouble, stage_main

Lines = list[tuple[int, str]]

STAGE = "import sys; from deepspark_ops.processes.stage_process import stage_main; from deepspark_ops.errors import *\n"


def test_stage_process_and_parent_agree_on_levels_messages_and_exit_codes() -> None:
    code = STAGE + (
        "import logging\n"
        "def run(path):\n"
        "    logging.getLogger('deepspark_ops.train').warning('two\\nlines')\n"
        "    raise ConfigError('n_workers=0: at least 1\\nallowed: more')\n"
        "sys.exit(stage_main(run, ['config.json']))"
    )
    lines: Lines = []
    with pytest.raises(StageFailed) as caught:
        run_command([sys.executable, "-c", code], stage="train", on_line=lambda *line: lines.append(line))
    assert str(caught.value) == "n_workers=0: at least 1\nallowed: more"
    assert caught.value.exit_code == 2
    assert lines[:2] == [(logging.WARNING, "two"), (logging.WARNING, "lines")]


def test_unexpected_exception_shows_its_traceback_and_ends_with_its_message() -> None:
    code = STAGE + "def run(path):\n    [][0]\nsys.exit(stage_main(run, ['config.json']))"
    lines: Lines = []
    with pytest.raises(StageFailed, match="IndexError: list index out of range") as caught:
        run_command([sys.executable, "-c", code], stage="train", on_line=lambda *line: lines.append(line))
    assert caught.value.exit_code == 1
    assert any("Traceback" in text for _, text in lines)
    assert lines[-1] == (logging.ERROR, "IndexError: list index out of range")


def test_path_that_cannot_be_written_is_told_without_a_traceback() -> None:
    code = STAGE + "def run(path):\n    open('/dev/null/metrics.json', 'w')\nsys.exit(stage_main(run, ['config.json']))"
    lines: Lines = []
    with pytest.raises(StageFailed, match=r"/dev/null/metrics\.json: Not a directory; give a path that can") as caught:
        run_command([sys.executable, "-c", code], stage="evaluate", on_line=lambda *line: lines.append(line))
    assert caught.value.exit_code == 2
    assert len(lines) == 1


def test_full_disk_may_be_tried_again() -> None:
    trouble = file_trouble(OSError(errno.ENOSPC, "No space left on device"))
    assert trouble == (
        1,
        "a file: No space left on device; make room there, or give a folder on another disk, and run it again",
    )
    assert file_trouble(OSError(errno.ECONNRESET, "Connection reset by peer")) is None


def test_a_copy_without_room_names_the_copy() -> None:
    trouble = file_trouble(OSError(errno.ENOSPC, "No space left on device", "source.h5", None, "full/copy.h5"))
    assert trouble is not None
    assert trouble[1].startswith("full/copy.h5: No space left on device; make room there")


@pytest.mark.parametrize(("error", "code"), [(ConfigError("x"), 2), (TrainingFailed("x"), 1), (StageFailed("x", 2), 2)])
def test_exit_code_tells_whether_the_user_must_act(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)  # leaves pytest's handlers alone

    def run(path: Path) -> None:
        raise error

    assert stage_main(run, ["config.json"]) == code
    assert stage_main(run, []) == 2
