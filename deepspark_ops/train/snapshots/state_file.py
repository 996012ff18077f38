"""``state.h5``: the state of data, workers and server for a retry, besides the weights.

Checksums reveal damage, so that a run never goes on from wrong numbers. Texts are of fixed length; older files have
texts of variable length.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from caffe_import.devices.loss_scale import LossScale
from caffe_import.errors import CaffeImportError
from caffe_import.files.hdf5_file import attribute, data_set, fixed_text, open_hdf5
from deepspark_ops.errors import DataError, DeepSparkError
from deepspark_ops.exchange.state.pending_snapshot import ServerState
from deepspark_ops.run_paths import write_whole
from deepspark_ops.train.snapshots.worker_state import WorkerState

_STABILISER = "stabiliser"
STATE_VERSION = 7
READABLE_VERSIONS = (2, 3, 4, 5, 6, 7)
"""2 has no checksums, 2 and 3 nothing of the server, 2 to 4 no loss scale, 2 to 5 nothing of the stabiliser, 6 only
curvatures of inner products."""


@dataclass(frozen=True)
class RunState:
    """The content of ``state.h5`` besides the workers' arrays.

    Attributes:
        clock: Minibatches done.
        origin: Clock at which the run began; not 0 after a Caffe solverstate.
        n_params: Length of the parameter vector.
        random_seed: Seed of the run.
        weights: File with the parameters, in the same folder; empty if the caller has the parameters.
        workers: Ids of saved workers, ascending; may be empty.
        leases: Data position per dataset, as the exchange wrote it.
        current_step: Counter of the rate policy, as in a Caffe solverstate.
        server_vectors: Number of the server's vectors besides the center.
    """

    clock: int
    origin: int
    n_params: int
    random_seed: int
    weights: str = ""
    workers: tuple[int, ...] = ()
    leases: Mapping[str, Any] = field(default_factory=dict)
    current_step: int = 0
    server_vectors: int = 0


def write_run_state(
    path: Path, state: RunState, workers: Mapping[int, WorkerState], server: ServerState | None = None
) -> None:
    """Write a ``state.h5``, whole or not at all.

    Args:
        path: The file.
        state: The run's part.
        workers: Read in order, each state once; two states are in memory at a time if the mapping loads each.
        server: The server's vectors besides the center, if any.
    """
    state = replace(state, server_vectors=0 if server is None else len(server.vectors))
    text = json.dumps(asdict(state)).encode()
    with write_whole(path) as temporary:
        with h5py.File(temporary, "w") as file:
            file.attrs["format_version"] = STATE_VERSION
            # A dataset, since an attribute holds at most 64 KiB and a shuffled epoch of many pieces may need more.
            file["run"] = np.frombuffer(text, np.uint8)
            file["run"].attrs["crc32"] = zlib.crc32(text)
            if server is not None:
                group = file.create_group("server")
                group.attrs["strategy"] = fixed_text(server.strategy)
                group.attrs["crc32"] = _server_checksum(server)
                group["counts"], group["vectors"] = server.counts, server.vectors
            _write_workers(file, workers)
        temporary.chmod(0o644)


def _write_workers(file: h5py.File, workers: Mapping[int, WorkerState]) -> None:
    """Write the states one after another; an array that is the history of several workers is in the file once."""
    previous: h5py.Dataset | None = None
    previous_history: npt.NDArray[np.float32] | None = None
    for worker, saved in workers.items():
        group = file.create_group(f"workers/{worker}")
        layers = sorted(saved.layer_state.items())
        group.attrs["updates"] = saved.updates
        if saved.loss_scale is not None:
            group.attrs["loss_scale"] = saved.loss_scale.scale
            group.attrs["good_steps"] = saved.loss_scale.good_steps
        label = _numbers(saved.updates, saved.loss_scale)
        group.attrs["crc32"] = _checksum(label, [("history", saved.history), *layers, *_stabiliser(saved)])
        # Of a data set h5py writes a second name.
        group["history"] = previous if saved.history is previous_history else saved.history
        previous, previous_history = group["history"], saved.history
        for name, numbers in _stabiliser(saved):
            group[name] = numbers
        for position, (name, value) in enumerate(layers):
            group[f"layer_state/{position}"] = value
            group[f"layer_state/{position}"].attrs["name"] = fixed_text(name)


def read_run_state(path: Path) -> RunState:
    """Return a ``state.h5`` without the workers' arrays.

    Raises:
        DataError: Not such a file, damaged, or of another version.
    """
    with _opened(path) as file:
        version = int(attribute(file, "format_version", 0))
        if version not in READABLE_VERSIONS:
            readable = ", ".join(map(str, READABLE_VERSIONS))
            msg = f"{path}: state of format version {version}; this program reads versions {readable}"
            raise DataError(msg)
        if version == 2:
            return _run_state_of_version_2(file)
        text = data_set(file, "run")[()].tobytes()
        _check(zlib.crc32(text), attribute(file["run"], "crc32"))
        fields = json.loads(text)
        return RunState(**{**fields, "workers": tuple(fields["workers"])})


def _run_state_of_version_2(file: h5py.File) -> RunState:
    numbers = {
        name: int(attribute(file, name)) for name in ("clock", "origin", "n_params", "random_seed", "current_step")
    }
    workers = tuple(sorted(int(worker) for worker in file.get("workers", {})))
    leases = json.loads(data_set(file, "leases")[()].tobytes())
    return RunState(**numbers, weights=str(attribute(file, "weights")), workers=workers, leases=leases)


def read_server_state(path: Path) -> ServerState | None:
    """Return the server's vectors besides the center; None without such vectors.

    Raises:
        DataError: Not such a file, damaged, or of another version.
    """
    if not read_run_state(path).server_vectors:
        return None
    with _opened(path) as file:
        group = file["server"]
        server = ServerState(
            str(attribute(group, "strategy")), data_set(group, "counts")[()], data_set(group, "vectors")[()]
        )
        _check(_server_checksum(server), attribute(group, "crc32"))
        return server


def read_worker_state(path: Path, worker: int) -> WorkerState | None:
    """Return the state for ``worker``: the worker's saved state, else another worker's in turn, else None.

    Raises:
        DataError: Not such a file, damaged, or of another version.
    """
    saved = read_run_state(path).workers
    if not saved:
        return None
    chosen = worker if worker in saved else saved[worker % len(saved)]
    with _opened(path) as file:
        group = file[f"workers/{chosen}"]
        items = group.get("layer_state", {})
        layers = [
            (str(attribute(item, "name")), item[()]) for item in (data_set(items, str(i)) for i in range(len(items)))
        ]
        updates, history = int(attribute(group, "updates")), data_set(group, "history")[()]
        scale = None
        if "loss_scale" in group.attrs:
            scale = LossScale(float(attribute(group, "loss_scale")), int(attribute(group, "good_steps")))
        stabiliser = data_set(group, _STABILISER)[()] if _STABILISER in group else None
        state = WorkerState(history, dict(layers), updates, scale, stabiliser)
        if attribute(file, "format_version") > 2:
            arrays = [("history", history), *layers, *_stabiliser(state)]
            _check(_checksum(_numbers(updates, scale), arrays), attribute(group, "crc32"))
        return state


def _stabiliser(state: WorkerState) -> list[tuple[str, npt.NDArray[np.float32]]]:
    return [] if state.stabiliser is None else [(_STABILISER, state.stabiliser)]


def _numbers(updates: int, scale: LossScale | None) -> str:
    return str(updates) if scale is None else f"{updates} {scale.scale} {scale.good_steps}"


def _checksum(label: str, arrays: Iterable[tuple[str, npt.NDArray[Any]]]) -> int:
    """Return the CRC-32 of a label and of arrays: names, dtypes, shapes and bytes."""
    checksum = zlib.crc32(label.encode())
    for name, array in arrays:
        checksum = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), checksum)
        checksum = zlib.crc32(np.ascontiguousarray(array).data, checksum)
    return checksum


def _server_checksum(server: ServerState) -> int:
    return _checksum(server.strategy, [("counts", server.counts), ("vectors", server.vectors)])


def _check(checksum: int, written: Any) -> None:
    if checksum != int(written):
        msg = "the checksum differs from the stored checksum"
        raise ValueError(msg)


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    """Open a ``state.h5`` to read.

    Raises:
        DataError: In place of any error of h5py: a damaged file raises errors of many kinds.
    """
    try:
        with open_hdf5(path) as file:
            yield file
    except DeepSparkError:
        raise
    except CaffeImportError as error:
        raise DataError(str(error)) from error
    except Exception as error:
        msg = f"{path}: not a state.h5 of a run, or damaged ({error}); remove it to go on from the one before"
        raise DataError(msg) from error
