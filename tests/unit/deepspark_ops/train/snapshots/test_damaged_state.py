"""Damaged state.h5 files: every byte that may be wrong ends in what was written or in an error of our own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from caffe_import.errors import CaffeImportError
from caffe_import.files.caffemodel import write_caffemodel
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.train.snapshots.snapshot import load_center
from deepspark_ops.train.snapshots.state_file import RunState, read_run_state, read_worker_state, write_run_state
from tests.unit.deepspark_ops.train.snapshots.test_snapshot import N_PARAMS, NET, worker_state

N_CASES = 120


def damage(content: bytes, rng: np.random.Generator) -> bytes:
    """Return the file with a byte or a bit changed, a stretch overwritten, or its end missing."""
    kind = rng.integers(4)
    at = int(rng.integers(len(content)))
    damaged = bytearray(content)
    if kind == 0:
        damaged[at] = int(rng.integers(256))
    elif kind == 1:
        damaged[at] ^= 1 << int(rng.integers(8))
    elif kind == 2:
        length = int(rng.integers(1, 64))
        damaged[at : at + length] = rng.bytes(len(damaged[at : at + length]))
    else:
        del damaged[at:]
    return bytes(damaged)


def test_a_damaged_state_is_refused_with_an_error_of_our_own_or_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "s_iter_1.state.h5"
    write_caffemodel(tmp_path / "w", NET, np.ones(N_PARAMS, np.float32))
    saved = RunState(1, 0, N_PARAMS, 5, "w", (0, 2), {"train": {"epoch": 3}}, 2)
    write_run_state(path, saved, {0: worker_state(0), 2: worker_state(2)})
    content = path.read_bytes()
    refused, foreign = 0, []
    for case in range(N_CASES):
        path.write_bytes(damage(content, np.random.default_rng(case)))
        try:
            state = read_run_state(path)
            load_center(path, state, NET)
            read_state = read_worker_state(path, 2)
            assert read_state is not None
            assert state == saved
            assert np.array_equal(read_state.history, worker_state(2).history)
            assert np.array_equal(read_state.layer_state["lstm/h"], worker_state(2).layer_state["lstm/h"])
        except (ConfigError, DataError, CaffeImportError):
            refused += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, the test names it
            foreign.append((case, type(error).__name__, str(error)[:80]))
    assert foreign == []
    assert refused > N_CASES // 10
