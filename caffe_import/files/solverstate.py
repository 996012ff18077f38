"""Caffe's solver state (``.solverstate``, ``.solverstate.h5``): iteration, rate counter, history; read and write.

Reading distinguishes binary and HDF5 by content, writing by the suffix ``.h5``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from caffe_import.errors import WeightsError
from caffe_import.file_access.whole_file import write_whole
from caffe_import.files.binary_file import float_dataset, is_hdf5, opened_hdf5, read_message
from caffe_import.files.blob_proto import FloatArray, array_from_blob, blob_from_array, has_shape
from caffe_import.files.hdf5_file import data_set
from caffe_import.net.param_layout import ParamLayout
from caffe_import.proto import caffe_pb2

_FILE_KIND = "a .solverstate or .solverstate.h5"


_MAX_SLOTS = 2
"""Adam and AdaDelta have two; no solver type has more."""


@dataclass(frozen=True)
class SolverState:
    """Caffe's state for resuming.

    Attributes:
        iteration: Finished updates.
        learned_net: Path of the weights file that belongs to it, as written.
        current_step: Counter of the step and multistep policies (``lr_policies.step_counter``).
        history: Blobs, float32, in Caffe's order: every owner in net order; Adam and AdaDelta append a second set.
    """

    iteration: int
    learned_net: str
    current_step: int
    history: list[FloatArray]


def read_solverstate(path: Path, *, layout: ParamLayout | None = None) -> SolverState:
    """Read a state in either form.

    Args:
        path: The file.
        layout: Of the net that takes the state. Of an HDF5 file only blobs that fit it are read; others have their
            shape and zeros, which take no memory. None reads all.

    Raises:
        WeightsError: The file is missing, damaged, or no solver state.
    """
    path = Path(path)
    return _read_hdf5(path, layout) if is_hdf5(path, file_kind=_FILE_KIND) else _read_binary(path)


def _read_binary(path: Path) -> SolverState:
    message = read_message(path, caffe_pb2.SolverState(), file_kind=_FILE_KIND)
    if not message.HasField("iter"):
        msg = f"{path}: holds no iteration; {_FILE_KIND} was expected"
        raise WeightsError(msg)
    history = [array_from_blob(blob, where=f"{path}: history {i}") for i, blob in enumerate(message.history)]
    return SolverState(message.iter, message.learned_net, message.current_step, history)


def _read_hdf5(path: Path, layout: ParamLayout | None) -> SolverState:
    with opened_hdf5(path, file_kind=_FILE_KIND) as file:
        group = file.get("history")
        if "iter" not in file or not isinstance(group, h5py.Group):
            msg = f'{path}: has no "iter" or no group "history"; {_FILE_KIND} was expected'
            raise WeightsError(msg)
        # By number: the library lists names in text order, 10 before 2.
        history = [
            float_dataset(group.get(str(i)), where=f"{path}: history {i}", is_read=partial(_fits, layout, i))
            for i in range(len(group))
        ]
        learned_net = data_set(file, "learned_net")[()] if "learned_net" in file else b""
        return SolverState(
            iteration=_whole_number(file["iter"], f"{path}: iter"),
            learned_net=learned_net.decode(errors="replace") if isinstance(learned_net, bytes) else str(learned_net),
            current_step=_whole_number(file["current_step"], f"{path}: current_step") if "current_step" in file else 0,
            history=history,
        )


def _fits(layout: ParamLayout | None, index: int, shape: tuple[int, ...]) -> bool:
    """Return whether a stored blob is one of the net's; every blob is, where no layout is given."""
    if layout is None:
        return True
    n_owners = len(layout.entries)
    return index < _MAX_SLOTS * n_owners and has_shape(shape, layout.entries[index % n_owners].shape)


def _whole_number(item: object, where: str) -> int:
    if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "iu" or item.size != 1:
        msg = f"{where}: one whole number was expected"
        raise WeightsError(msg)
    return int(np.asarray(item).reshape(-1)[0])


def write_solverstate(path: Path, state: SolverState) -> None:
    """Write a state for Caffe to restore; HDF5 if ``path`` ends in ``.h5``. The file appears whole or not at all."""
    path = Path(path)
    with write_whole(path) as temporary:
        if path.suffix == ".h5":
            _write_hdf5(temporary, state)
        else:
            _write_message(temporary, state)


def _write_message(temporary: Path, state: SolverState) -> None:
    # Blob by blob: the whole message at once would need the history three times in memory. The parts of a message make
    # the message.
    first = caffe_pb2.SolverState(iter=state.iteration, learned_net=state.learned_net)
    with temporary.open("wb") as file:
        file.write(first.SerializeToString())
        for blob in state.history:
            file.write(caffe_pb2.SolverState(history=[blob_from_array(blob)]).SerializeToString())
        file.write(caffe_pb2.SolverState(current_step=state.current_step).SerializeToString())


def _write_hdf5(temporary: Path, state: SolverState) -> None:
    with h5py.File(temporary, "w") as file:
        file.create_dataset("iter", data=np.array([state.iteration], np.int32))
        file.create_dataset("current_step", data=np.array([state.current_step], np.int32))
        _write_c_string(file, "learned_net", state.learned_net)
        group = file.create_group("history")
        for index, blob in enumerate(state.history):
            group.create_dataset(str(index), data=blob, dtype="<f4")


def _write_c_string(file: h5py.File, name: str, text: str) -> None:
    """Write a NUL-terminated scalar string, as H5LTmake_dataset_string; Caffe reads up to the NUL."""
    content = text.encode() + b"\x00"
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(len(content))
    kind.set_strpad(h5py.h5t.STR_NULLTERM)
    dataset = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create(h5py.h5s.SCALAR))
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(content, dtype=f"S{len(content)}"), kind)


def history_blobs(layout: ParamLayout, slots: npt.NDArray[np.float32]) -> list[FloatArray]:
    """Return the history in Caffe's order: for each slot, a view of every owner's part in the owner's shape.

    Args:
        layout: The net's parameter blobs.
        slots: float32 (n_slots, n_params): momentum; for Adam m and v, for AdaDelta gradients and updates.
    """
    return [slot[entry.offset : entry.stop].reshape(entry.shape) for slot in slots for entry in layout.entries]


def history_slots(
    layout: ParamLayout, blobs: Sequence[FloatArray], *, n_slots: int | None = None, where: str = "solver state"
) -> npt.NDArray[np.float32]:
    """Return the history as float32 (n_slots, n_params), freshly allocated; the inverse of ``history_blobs``.

    Args:
        layout: The net's parameter blobs.
        blobs: A state's history; legacy shapes with ones in front fit.
        n_slots: What the solver type has; None takes what the file has.
        where: Begins the error: the file's name.

    Raises:
        WeightsError: The number of blobs or a shape is not that of the net and the solver; both are named.
    """
    n_owners = len(layout.entries)
    n_stored = len(blobs) // n_owners if n_owners else 0
    is_fraction = n_owners and len(blobs) % n_owners
    if is_fraction or n_stored > _MAX_SLOTS or (n_slots is not None and len(blobs) != n_slots * n_owners):
        counts = f"{n_slots} x {n_owners}" if n_slots is not None else f"1 x {n_owners} or {_MAX_SLOTS} x {n_owners}"
        msg = f"{where}: {len(blobs)} history blobs, the net and its solver need {counts}; is it another net's state?"
        raise WeightsError(msg)
    slots = np.empty((n_slots if n_slots is not None else n_stored, layout.n_params), np.float32)
    for index, blob in enumerate(blobs):
        entry = layout.entries[index % n_owners]
        if not has_shape(blob.shape, entry.shape):
            msg = (
                f'{where}: history {index} has shape {blob.shape}, layer "{entry.layer}" blob {entry.index} '
                f"has {entry.shape}; is it another net's state?"
            )
            raise WeightsError(msg)
        slots[index // n_owners, entry.offset : entry.stop] = blob.reshape(-1)
    return slots
