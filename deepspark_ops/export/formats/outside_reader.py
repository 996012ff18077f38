"""Runs a model's files in a process of its own that has nothing of ours: another's reader must find them right."""

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
_TOLD = 500


class ReaderFailed(DeepSparkError):
    """The reader could not run the files; the message is what it said last."""


def read_outside(
    program: Path, arguments: Sequence[str], inputs: Mapping[str, npt.NDArray[Any]], outputs: Sequence[str]
) -> dict[str, npt.NDArray[np.float64]]:
    """Return what a reader answers: output -> array.

    Args:
        program: A Python file. It is given a folder, then ``arguments``; there ``names.json`` has the names of
            ``inputs`` and ``outputs``, and ``inputs.npz`` the inputs' arrays ``arr_0``, ``arr_1``, ... in that order.
            It writes ``answers.npz`` there, the outputs' arrays in their order.
        arguments: Its own.
        inputs: Name -> array, samples first.
        outputs: Names of what is to be answered.

    Raises:
        ReaderFailed: It ended with an error, was ended by a signal, or took longer than 15 minutes.
    """
    with tempfile.TemporaryDirectory(prefix="deepspark-read-") as folder:
        Path(folder, "names.json").write_text(
            json.dumps({"inputs": list(inputs), "outputs": list(outputs)}), encoding="utf-8"
        )
        np.savez(Path(folder, "inputs.npz"), *inputs.values())
        # -P: neither our package nor the program's folder comes before what is installed.
        command = (sys.executable, "-P", str(program), folder, *arguments)
        try:
            done = subprocess.run(
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
        if done.returncode != 0:
            raise ReaderFailed(_last_words(done))
        with np.load(Path(folder, "answers.npz")) as answers:
            return {name: answers[f"arr_{at}"].astype(np.float64) for at, name in enumerate(outputs)}


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Return the error itself, without the way to it."""
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    if done.returncode < 0 or not said:
        return f"its process ended by {'signal' if done.returncode < 0 else 'code'} {abs(done.returncode)}"
    starts = [at for at, line in enumerate(said) if ".error: " in line or "Error: " in line]
    return " ".join(said[starts[-1] if starts else -1 :])[:_TOLD]
