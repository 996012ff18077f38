"""Reader programs in separate processes, started for a file or before the file is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.config.shared_options.bundle_formats import CAFFE, KERAS, TFLITE
from deepspark_ops.export.formats import outside_reader
from deepspark_ops.export.formats.outside_reader import ReaderFailed, read_outside, readers_ahead

PROGRAM = """
import json, os, sys
from pathlib import Path
Path(sys.argv[0]).with_name(f"started-{os.getpid()}").touch()
folder = sys.argv[1]
file, = json.loads(sys.stdin.readline())
import numpy as np
names = json.loads(Path(folder, "names.json").read_text())
assert (names, os.getcwd()) == ({"inputs": ["x"], "outputs": ["twice", "file"]}, os.path.realpath(folder))
x = np.load(Path(folder, "inputs.npz"))["arr_0"]
np.savez(Path(folder, "answers.npz"), 2 * x, np.array([float(Path(file).read_text())]))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path / "program.py"


def answers_of(program: Path, number: float) -> list[list[float]]:
    file = program.with_name("file")
    file.write_text(str(number))
    answers = read_outside(program, [str(file)], {"x": np.array([1.0, 3.0], np.float32)}, ["twice", "file"])
    return [answers["twice"].tolist(), answers["file"].tolist()]


def n_started(program: Path) -> int:
    return len(list(program.parent.glob("started-*")))


def test_a_reader_answers_from_the_files(program: Path) -> None:
    assert answers_of(program, 7.0) == [[2.0, 6.0], [7.0]]


def test_a_reader_that_waits_reads_a_file_that_is_written_later(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside_reader, "_SLOW", {KERAS: program})
    with readers_ahead([CAFFE, KERAS]):
        (waiting,) = outside_reader._started[program]
        assert answers_of(program, 7.0) == [[2.0, 6.0], [7.0]]
        assert (waiting._process.returncode, n_started(program)) == (0, 1)
        assert answers_of(program, 8.0) == [[2.0, 6.0], [8.0]]
        assert n_started(program) == 2
    assert not outside_reader._started


def test_a_reader_without_a_file_is_ended(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside_reader, "_SLOW", {KERAS: program})
    with readers_ahead(None):
        (waiting,) = outside_reader._started[program]
    assert waiting._process.returncode == -9
    assert not Path(waiting._folder.name).exists()


def test_the_reader_of_keras_starts_ahead_if_the_bundle_has_its_format(monkeypatch: pytest.MonkeyPatch) -> None:
    programs: list[Path] = []

    class Reader:
        def __init__(self, program: Path) -> None:
            programs.append(program)

        def close(self) -> None: ...

    monkeypatch.setattr(outside_reader, "OutsideReader", Reader)
    for formats in (None, [CAFFE, KERAS], [CAFFE, TFLITE]):
        with readers_ahead(formats):
            pass
    assert [(program.name, program.is_file()) for program in programs] == [("keras_reader.py", True)] * 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("raise ValueError('no such layer')", "ValueError: no such layer"),
        ("os.kill(os.getpid(), 9)", "its process ended by signal 9"),
    ],
)
def test_a_reader_that_fails_says_its_error(program: Path, line: str, message: str) -> None:
    program.write_text(f"import os\n{line}")
    with pytest.raises(ReaderFailed, match=message):
        answers_of(program, 7.0)
