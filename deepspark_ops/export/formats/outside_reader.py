"""Runs a model's files in a separate process without DeepSpark: an independent reader must accept the files."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.config.shared_options.bundle_formats import BY_DEFAULT, KERAS
from deepspark_ops.errors import DeepSparkError

KERAS_READER: Final = Path(__file__).with_name("keras_reader.py")
_SLOW: Final = {KERAS: KERAS_READER}
"""Formats whose readers load TensorFlow, which takes longer than everything else that a reader does."""
_TIMEOUT_S = 900.0
_MAX_MESSAGE_CHARS = 500


class ReaderFailed(DeepSparkError):
    """The reader could not run the files; the message is the reader's last error."""


class OutsideReader:
    """The process of a reader program, which loads its framework while the model's files are written. Used once.

    The program's argument is a folder: ``names.json`` has the names of inputs and outputs, ``inputs.npz`` has the
    inputs' arrays ``arr_0``, ``arr_1``, ... in the same order. Both are there when standard input has a line of JSON,
    the further arguments. The program writes ``answers.npz`` into the folder, with the outputs' arrays in order.
    """

    def __init__(self, program: Path) -> None:
        """Start the program, a Python file."""
        self._program = program
        self._folder = tempfile.TemporaryDirectory(prefix="deepspark-read-")
        self._process = subprocess.Popen(
            # -P: neither DeepSpark's nor the program's folder precedes the installed packages in sys.path.
            (sys.executable, "-P", str(program), self._folder.name),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=self._folder.name,
        )

    def answers(
        self, arguments: Sequence[str], inputs: Mapping[str, npt.NDArray[Any]], outputs: Sequence[str]
    ) -> dict[str, npt.NDArray[np.float64]]:
        """Return the answers, output -> array; see ``read_outside``."""
        folder = Path(self._folder.name)
        names = json.dumps({"inputs": list(inputs), "outputs": list(outputs)})
        (folder / "names.json").write_text(names, encoding="utf-8")
        np.savez(folder / "inputs.npz", *inputs.values())
        try:
            _, errors = self._process.communicate(json.dumps(list(arguments)) + "\n", _TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            msg = f"no answer from {self._program.stem} in {_TIMEOUT_S:g} s"
            raise ReaderFailed(msg) from error
        if self._process.returncode != 0:
            raise ReaderFailed(_last_words(self._process.returncode, errors))
        with np.load(folder / "answers.npz") as answers:
            return {name: answers[f"arr_{at}"].astype(np.float64) for at, name in enumerate(outputs)}

    def close(self) -> None:
        """End the process, and remove the folder."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._folder.cleanup()


_started: Final[dict[Path, list[OutsideReader]]] = {}
"""Readers that wait for their files."""


@contextmanager
def readers_ahead(formats: Collection[str] | None) -> Iterator[None]:
    """Start the slow readers of a bundle's formats for the block; its end ends the readers that were not needed."""
    try:
        for program in (_SLOW[name] for name in formats or BY_DEFAULT if name in _SLOW):
            _started.setdefault(program, []).append(OutsideReader(program))
        yield
    finally:
        for readers in _started.values():
            for reader in readers:
                reader.close()
        _started.clear()


def read_outside(
    program: Path, arguments: Sequence[str], inputs: Mapping[str, npt.NDArray[Any]], outputs: Sequence[str]
) -> dict[str, npt.NDArray[np.float64]]:
    """Return the answers of a reader program, one that waits or a new one: output -> array; see ``OutsideReader``.

    Raises:
        ReaderFailed: The program ended with an error or by a signal, or took longer than 15 minutes.
    """
    try:
        reader = _started.get(program, []).pop()
    except IndexError:
        reader = OutsideReader(program)
    with closing(reader):
        return reader.answers(arguments, inputs, outputs)


def _last_words(exit_code: int, errors: str) -> str:
    """Return the error message, without the traceback."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    if exit_code < 0 or not lines:
        return f"its process ended by {'signal' if exit_code < 0 else 'code'} {abs(exit_code)}"
    starts = [at for at, line in enumerate(lines) if ".error: " in line or "Error: " in line]
    return " ".join(lines[starts[-1] if starts else -1 :])[:_MAX_MESSAGE_CHARS]
