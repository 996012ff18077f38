"""Solver states: read, written byte for byte as Caffe writes them, history as vectors."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from caffe_import.errors import WeightsError
from caffe_import.files.solverstate import (
    SolverState,
    history_blobs,
    history_slots,
    read_solverstate,
    write_solverstate,
)
from caffe_import.net.param_layout import ParamEntry, ParamLayout
from tests.paths import FIXTURES

SOLVERS = FIXTURES / "caffe" / "solvers"
STATES = sorted(SOLVERS.glob("*/snap_iter_10.solverstate*"))
LAYOUT = ParamLayout((ParamEntry("ip", 0, 0, (2, 3)), ParamEntry("ip", 1, 6, (2,))), {("ip", 0): 0, ("ip", 1): 1})


def hdf5_content(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = {}

    def visit(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset):
            kind = item.id.get_type()
            text = (kind.get_strpad(),) if item.dtype.kind == "S" else ()
            content[name] = (item[()].tobytes(), item.shape, str(item.dtype), kind.get_size(), *text)

    with h5py.File(path) as file:
        file.visititems(visit)
    return content


@pytest.mark.parametrize("path", STATES, ids=lambda path: path.parent.name)
def test_state_is_rewritten_as_caffe_wrote_it(path: Path, tmp_path: Path) -> None:
    state = read_solverstate(path)
    assert state.iteration == 10
    assert state.learned_net == f"solvers/{path.parent.name}/{path.name.replace('solverstate', 'caffemodel')}"
    copy = tmp_path / path.name
    write_solverstate(copy, state)
    if path.suffix == ".h5":
        assert hdf5_content(copy) == hdf5_content(path)
    else:
        assert copy.read_bytes() == path.read_bytes()


def test_states_of_both_forms_are_there() -> None:
    assert {path.suffix for path in STATES} == {".h5", ".solverstate"}


@pytest.mark.parametrize(("case", "n_slots"), [("snap_sgd", 1), ("snap_adam", 2), ("snap_adadelta", 2)])
def test_solvers_with_two_slots_append_a_second_full_set(case: str, n_slots: int) -> None:
    history = read_solverstate(SOLVERS / case / "snap_iter_10.solverstate").history
    shapes = [blob.shape for blob in history]
    assert len(shapes) == 4 * n_slots
    assert shapes[: len(shapes) // n_slots] * n_slots == shapes


@pytest.mark.parametrize("suffix", ["solverstate", "solverstate.h5"])
def test_more_than_ten_history_blobs_keep_their_order(suffix: str, tmp_path: Path) -> None:
    history = [np.full((i + 1,), i, np.float32) for i in range(23)]
    write_solverstate(tmp_path / f"s.{suffix}", SolverState(7, "m", 2, history))
    state = read_solverstate(tmp_path / f"s.{suffix}")
    assert (state.iteration, state.learned_net, state.current_step) == (7, "m", 2)
    assert [blob.shape for blob in state.history] == [blob.shape for blob in history]
    assert [blob[0] for blob in state.history] == list(range(23))


class TestHistory:
    SLOTS = np.arange(16, dtype=np.float32).reshape(2, 8)

    def test_blobs_are_slot_after_slot_owner_after_owner(self) -> None:
        blobs = history_blobs(LAYOUT, self.SLOTS)
        assert [blob.shape for blob in blobs] == [(2, 3), (2,), (2, 3), (2,)]
        assert [float(blob.flat[0]) for blob in blobs] == [0, 6, 8, 14]

    def test_slots_are_the_inverse(self) -> None:
        slots = history_slots(LAYOUT, history_blobs(LAYOUT, self.SLOTS), n_slots=2)
        np.testing.assert_array_equal(slots, self.SLOTS)
        assert not np.shares_memory(slots, self.SLOTS)

    def test_legacy_shapes_fit(self) -> None:
        blobs = [np.ones((1, 1, 2, 3), np.float32), np.ones((1, 1, 1, 2), np.float32)]
        assert history_slots(LAYOUT, blobs).shape == (1, 8)

    def test_other_net_names_layer_and_both_shapes(self) -> None:
        blobs = [np.ones((3, 2), np.float32), np.ones(2, np.float32)]
        with pytest.raises(WeightsError) as caught:
            history_slots(LAYOUT, blobs, where="s.solverstate")
        assert str(caught.value) == (
            's.solverstate: history 0 has shape (3, 2), layer "ip" blob 0 has (2, 3); is it another net\'s state?'
        )

    @pytest.mark.parametrize(
        ("n_blobs", "n_slots", "n_needed"),
        [(3, None, "1 x 2 or 2 x 2"), (6, None, "1 x 2 or 2 x 2"), (2, 2, "2 x 2"), (4, 1, "1 x 2")],
    )
    def test_wrong_count_is_refused(self, n_blobs: int, n_slots: int | None, n_needed: str) -> None:
        blobs = (history_blobs(LAYOUT, self.SLOTS) * 3)[:n_blobs]
        with pytest.raises(WeightsError, match=f"{n_blobs} history blobs, the net and its solver need {n_needed}"):
            history_slots(LAYOUT, blobs, n_slots=n_slots)

    def test_net_without_parameters_has_an_empty_history(self) -> None:
        assert history_slots(ParamLayout((), {}), [], n_slots=1).shape == (1, 0)


@pytest.mark.parametrize("suffix", ["solverstate", "solverstate.h5"])
def test_damaged_files_are_refused(suffix: str, tmp_path: Path) -> None:
    case = "snap_adam_h5" if suffix.endswith("h5") else "snap_adam"
    content = (SOLVERS / case / f"snap_iter_10.{suffix}").read_bytes()
    path = tmp_path / f"s.{suffix}"
    for length in (0, 1, 7, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(WeightsError, match=path.name):
            read_solverstate(path)


def test_weights_file_is_no_state(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r'has no "iter" or no group "history"; a \.solverstate'):
        read_solverstate(SOLVERS / "snap_adam_h5" / "snap_iter_10.caffemodel.h5")
    with pytest.raises(WeightsError, match=r"a \.solverstate"):
        read_solverstate(SOLVERS / "snap_adam" / "snap_iter_10.caffemodel")


def test_hdf5_counter_must_be_one_whole_number(tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    for wrong in ([1, 2], [1.5], [float("nan")]):
        with h5py.File(path, "w") as file:
            file["iter"] = np.array(wrong)
            file.create_group("history")
        with pytest.raises(WeightsError, match=r"s\.h5: iter: one whole number was expected"):
            read_solverstate(path)


def test_hdf5_history_that_does_not_fit_the_net_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "s.solverstate.h5"
    with h5py.File(path, "w") as file:
        file["iter"] = 3
        file.create_dataset("history/0", data=np.zeros((20_000, 1000), np.float32), compression="gzip")
        file["history/1"] = np.ones(2, np.float32)
    tracemalloc.start()
    try:
        state = read_solverstate(path, layout=LAYOUT)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    with pytest.raises(WeightsError, match=r"history 0 has shape \(20000, 1000\)"):
        history_slots(LAYOUT, state.history)
