"""Runs a model's files in a separate process without DeepSpark: an independent reader must accept the files."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepspark_ops.errors import DeepSparkError

_TIMEOUT_S = 900.0
_MAX_MESSAGE_CHARS = 500


class ReaderFailed(DeepSparkError):
    """The reader could not run the files; the message is the reader's last error."""


def read_outside(
    program: Path, arguments: Sequence[str], inputs: Mapping[str, npt.NDArray[Any]], outputs: Sequence[str]
) -> dict[str, npt.NDArray[np.float64]]:
    """Return the answers of a reader program: output -> array.

    Args:
        program: Python file. Its first argument is a folder: ``names.json`` has the names of ``inputs`` and
            ``outputs``, ``inputs.npz`` has the inputs' arrays ``arr_0``, ``arr_1``, ... in the same order. The program
            writes ``answers.npz`` into the folder, with the outputs' arrays in order.
        arguments: Further arguments of the program.
        inputs: Name -> array, samples first.
        outputs: Names of the requested outputs.

    Raises:
        ReaderFailed: The program ended with an error or by a signal, or took longer than 15 minutes.
    """
    with tempfile.TemporaryDirectory(prefix="deepspark-read-") as folder:
        Path(folder, "names.json").write_text(
            json.dumps({"inputs": list(inputs), "outputs": list(outputs)}), encoding="utf-8"
        )
        np.savez(Path(folder, "inputs.npz"), *inputs.values())
        # -P: neither DeepSpark's nor the program's folder precedes the installed packages in sys.path.
        command = (sys.executable, "-P", str(program), folder, *arguments)
        try:
            completed = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            msg = f"no answer from {program.stem} in {_TIMEOUT_S:g} s"
            raise ReaderFailed(msg) from error
        if completed.returncode != 0:
            raise ReaderFailed(_last_words(completed))
        with np.load(Path(folder, "answers.npz")) as answers:
            return {name: answers[f"arr_{at}"].astype(np.float64) for at, name in enumerate(outputs)}


def _last_words(completed: subprocess.CompletedProcess[str]) -> str:
    """Return the error message, without the traceback."""
    lines = [line.strip() for line in completed.stderr.splitlines() if line.strip()]
    if completed.returncode < 0 or not lines:
        return f"its process ended by {'signal' if completed.returncode < 0 else 'code'} {abs(completed.returncode)}"
    starts = [at for at, line in enumerate(lines) if ".error: " in line or "Error: " in line]
    return " ".join(lines[starts[-1] if starts else -1 :])[:_MAX_MESSAGE_CHARS]
