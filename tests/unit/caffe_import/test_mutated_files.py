"""Binary files with bytes changed, cut out and put in give arrays or the importer's own errors, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caffe_import.data.hdf5_source import Hdf5Source
from caffe_import.errors import CaffeImportError, WeightsError
from caffe_import.files.blob_proto import array_from_blob
from caffe_import.files.mean_file import read_mean
from caffe_import.files.solverstate import read_solverstate
from caffe_import.proto import caffe_pb2
from tests.paths import FIXTURES

CAFFE = FIXTURES / "caffe"
STATES = {path.suffix: path for path in sorted(CAFFE.glob("solvers/*/snap_iter_10.solverstate*"))}


def read_rows(path: Path) -> list[Any]:
    return Hdf5Source((path,), ("data", "label")).read(0, 1)


READERS: list[tuple[Path, Callable[[Path], object]]] = [
    *((path, read_solverstate) for path in STATES.values()),
    (CAFFE / "data" / "mean.binaryproto", read_mean),
    (next(iter(sorted(CAFFE.glob("data/solver_*.h5")))), read_rows),
]


@st.composite
def mutated(draw: st.DrawFn, content: bytes) -> bytes:
    damaged = bytearray(content)
    for _ in range(draw(st.integers(1, 5))):
        # Most of what can go wrong stands in front.
        offset = draw(st.integers(0, min(len(damaged), 3000) - 1) | st.integers(0, len(damaged) - 1))
        kind = draw(st.sampled_from(["set", "set", "cut", "put"]))
        if kind == "set":
            damaged[offset] = draw(st.sampled_from([0, 255]) | st.integers(0, 255))
        elif kind == "cut" and len(damaged) > 100:
            del damaged[offset : offset + draw(st.integers(1, 50))]
        else:
            damaged[offset:offset] = draw(st.binary(min_size=1, max_size=8))
    return bytes(damaged)


@pytest.mark.parametrize(("path", "read"), READERS, ids=[path.name for path, _ in READERS])
def test_reader_gives_values_or_its_own_error(path: Path, read: Callable[[Path], object], tmp_path: Path) -> None:
    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(mutated(path.read_bytes()))
    def run(content: bytes) -> None:
        changed = tmp_path / path.name
        changed.write_bytes(content)
        with suppress(CaffeImportError):
            read(changed)

    run()


def test_float_type_that_numpy_lacks_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "s.solverstate.h5"
    with h5py.File(path, "w") as file:
        file["iter"], file["current_step"] = [1], [0]
        kind = h5py.h5t.IEEE_F32LE.copy()
        kind.set_fields(31, 22, 9, 0, 22)
        kind.set_ebias(2**8 * 100)
        space = h5py.h5s.create_simple((2,))
        h5py.h5d.create(file.create_group("history").id, b"0", kind, space)
    with pytest.raises(WeightsError, match="is damaged"):
        read_solverstate(path)


def test_double_beyond_float_is_infinite() -> None:
    blob = caffe_pb2.BlobProto(double_data=[1e300, 1.5])
    blob.shape.dim.append(2)
    np.testing.assert_array_equal(array_from_blob(blob, where="x"), np.float32([np.inf, 1.5]))
