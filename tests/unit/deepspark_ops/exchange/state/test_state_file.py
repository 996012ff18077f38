from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deepspark_ops.errors import ProtocolError
from deepspark_ops.exchange.state.state_file import StateFileWriter, write_state


def test_numpy_reads_what_was_written(tmp_path: Path) -> None:
    arrays = {
        "history": np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32),
        "lstm/h state é": np.arange(6, dtype=np.int64).reshape(1, 2, 3).transpose(2, 0, 1),
        "updates": np.array(7, np.uint64),
        "none": np.empty((0, 3), np.float64),
    }
    write_state(tmp_path / "a" / "worker_0.npz", arrays)
    with np.load(tmp_path / "a" / "worker_0.npz", allow_pickle=False) as archive:
        assert sorted(archive.files) == sorted(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(archive[name], array)
            assert archive[name].dtype == array.dtype
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["worker_0.npz"]


@pytest.mark.parametrize(
    ("name", "dtype", "shape"), [("x", "|O", (1,)), ("x", "no such", (1,)), ("", "<f4", (1,)), ("x" * 600, "<f4", (1,))]
)
def test_what_is_not_a_plain_array_is_refused(tmp_path: Path, name: str, dtype: str, shape: tuple[int, ...]) -> None:
    with (
        pytest.raises(ProtocolError, match="expected a plain numeric array"),
        StateFileWriter(tmp_path / "w") as writer,
    ):
        writer.begin(name, dtype, shape)
    assert list(tmp_path.iterdir()) == []


def test_missing_bytes_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="ended 4 bytes short"):
        write_pieces(tmp_path / "w", 4)
    assert list(tmp_path.iterdir()) == []


def test_surplus_bytes_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="12 bytes sent, 8 expected"):
        write_pieces(tmp_path / "w", 12)
    assert list(tmp_path.iterdir()) == []


def write_pieces(path: Path, n_bytes: int) -> None:
    """Announce two floats and bring ``n_bytes``."""
    with StateFileWriter(path) as writer:
        assert writer.begin("x", "<f4", (2,)) == 8
        writer.write(memoryview(bytes(n_bytes)))
        writer.finish()
