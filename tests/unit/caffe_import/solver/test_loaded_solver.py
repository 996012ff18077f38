"""A solver's file and the named nets."""

from __future__ import annotations

from pathlib import Path

import pytest

from caffe_import.errors import PrototxtError
from caffe_import.proto import caffe_pb2
from caffe_import.solver.loaded_solver import load_solver
from tests.paths import FIXTURES

CAFFE = FIXTURES / "caffe"
BASE = 'base_lr: 0.5 max_iter: 10 lr_policy: "fixed" '
NET = 'name: "n" layer { name: "d" type: "Input" top: "x" input_param { shape { dim: 1 } } }'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A solver's folder with a net, below the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "net.prototxt").write_text(NET)
    return tmp_path / "model"


def write_solver(folder: Path, text: str) -> Path:
    path = folder / "solver.prototxt"
    path.write_text(text)
    return path


class TestLoadSolver:
    def test_refused_value_is_shown_with_its_line(self, folder: Path) -> None:
        path = write_solver(folder, 'net: "net.prototxt"\nbase_lr: 0.5\nmax_iter: 10\nlr_policy: "fixd"\n')
        with pytest.raises(PrototxtError) as caught:
            load_solver(path)
        assert str(caught.value) == (
            f'{path}:4:12: lr_policy is "fixd"; allowed: fixed, step, exp, inv, multistep, poly, sigmoid; '
            'did you mean "fixed"?\n    4 | lr_policy: "fixd"\n      |            ^^^^^^'
        )
        assert (caught.value.line, caught.value.column, caught.value.allowed[0]) == (4, 12, "fixed")

    def test_refused_override_is_shown_in_the_overrides(self, folder: Path) -> None:
        path = write_solver(folder, f'net: "net.prototxt" {BASE} momentum: 0.5')
        with pytest.raises(PrototxtError, match=r"^<solver overrides>:1:11: momentum=-1; allowed: 0 or more"):
            load_solver(path, "momentum: -1")

    def test_net_beside_the_solver_is_found(self, folder: Path) -> None:
        loaded = load_solver(write_solver(folder, f'net: "net.prototxt" {BASE}'))
        assert loaded.net_path == folder / "net.prototxt"
        assert loaded.train_net.name == "n"

    def test_working_directory_goes_first(self, folder: Path) -> None:
        (folder.parent / "net.prototxt").write_text(NET.replace('"n"', '"outer"'))
        loaded = load_solver(write_solver(folder, f'net: "net.prototxt" {BASE}'))
        assert (loaded.train_net.name, loaded.net_path) == ("outer", Path("net.prototxt"))

    def test_net_named_from_a_folder_above_the_solver_is_found(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir("/")
        loaded = load_solver(write_solver(folder, f'net: "{folder.name}/net.prototxt" {BASE}'))
        assert loaded.net_path == folder / "net.prototxt"

    def test_missing_net_names_both_places(self, folder: Path) -> None:
        with pytest.raises(PrototxtError) as caught:
            load_solver(write_solver(folder, f'net: "../nett.prototxt" {BASE}'))
        assert str(caught.value).splitlines()[0] == (
            f'{folder / "solver.prototxt"}:1:6: net: "../nett.prototxt": no such file, neither from the working '
            f"directory {folder.parent} nor from the solver's folder {folder} or one above it"
        )

    @pytest.mark.parametrize(
        "written", ["/home/someone/nets/net.prototxt", "C:/work/net.prototxt", "other/net.prototxt"]
    )
    def test_missing_net_of_another_machine_names_the_file_beside_the_solver(self, folder: Path, written: str) -> None:
        with pytest.raises(PrototxtError, match=r"; the solver's folder has .net\.prototxt.: write this name\n"):
            load_solver(write_solver(folder, f'net: "{written}" {BASE}'))

    def test_missing_test_net_is_shown_only_where_its_line_is_known(self, folder: Path) -> None:
        nets = 'train_net: "net.prototxt" test_iter: 1 test_iter: 1 test_interval: 1 test_net: "{}" test_net: "{}"'
        with pytest.raises(PrototxtError) as first:
            load_solver(write_solver(folder, f"{nets.format('missing', 'net.prototxt')} {BASE}"))
        with pytest.raises(PrototxtError) as last:
            load_solver(write_solver(folder, f"{nets.format('net.prototxt', 'missing')} {BASE}"))
        assert (first.value.line, last.value.line) == (0, 1)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ("", "names no training net; give one of net, net_param, train_net, train_net_param"),
            ('net: "net.prototxt" train_net: "net.prototxt"', "names net, train_net as training net; keep one of them"),
            ('net: "net.prototxt" test_net: "net.prototxt"', "0 test_iter for 1 test nets; give at least one"),
            ('train_net: "net.prototxt" test_iter: 3 test_interval: 1', "1 test_iter for 0 test nets"),
            ('net: "net.prototxt" test_iter: 3', "test_iter is given and test_interval is not given; give the updates"),
            ('net: "net.prototxt" test_iter: 3 test_interval: 0', "test_iter is given and test_interval is 0; give"),
            ('net: "net.prototxt" test_iter: 3 test_interval: 1 test_state { } test_state { }', "2 test_state for 1"),
        ],
    )  # fmt: skip
    def test_nets_that_caffe_refuses(self, folder: Path, fields: str, message: str) -> None:
        with pytest.raises(PrototxtError) as caught:
            load_solver(write_solver(folder, f"{fields} {BASE}"))
        assert f"solver.prototxt: {message}" in str(caught.value)

    def test_test_interval_without_test_iter_means_no_test_nets(self, folder: Path) -> None:
        loaded = load_solver(write_solver(folder, f'net: "net.prototxt" test_interval: 5 {BASE}'))
        assert (loaded.test_nets, loaded.test_states) == ((), ())

    def test_test_nets_come_in_caffes_order(self, folder: Path) -> None:
        (folder / "b.prototxt").write_text(NET.replace('"n"', '"b"'))
        text = (
            'net: "net.prototxt" test_net: "b.prototxt" test_net_param { name: "a" } test_interval: 5 '
            "test_iter: 1 test_iter: 2 test_iter: 3 test_iter: 4 "
        )
        loaded = load_solver(write_solver(folder, text + BASE))
        assert [net.name for net in loaded.test_nets] == ["a", "b", "n", "n"]
        assert loaded.spec.test_iter == (1, 2, 3, 4)

    def test_test_iter_0_means_no_tests(self, folder: Path) -> None:
        loaded = load_solver(write_solver(folder, f'net: "net.prototxt" test_iter: 0 test_interval: 1000000 {BASE}'))
        assert (loaded.test_nets, loaded.test_states, loaded.spec.test_iter) == ((), (), ())

    def test_test_net_with_test_iter_0_is_left_out_with_its_state(self, folder: Path) -> None:
        (folder / "b.prototxt").write_text(NET.replace('"n"', '"b"'))
        text = (
            'net: "net.prototxt" test_net: "b.prototxt" test_net_param { name: "a" } test_interval: 5 '
            "test_iter: 1 test_iter: 0 test_iter: 3 test_iter: 0 "
            "test_state { level: 1 } test_state { level: 2 } test_state { level: 3 } test_state { level: 4 }"
        )
        loaded = load_solver(write_solver(folder, text + BASE))
        assert [net.name for net in loaded.test_nets] == ["a", "n"]
        assert [state.level for state in loaded.test_states] == [1, 3]
        assert loaded.spec.test_iter == (1, 3)
        assert list(loaded.spec.message.test_net) == []

    def test_missing_max_iter_names_the_last_line_and_the_remedy(self, folder: Path) -> None:
        path = write_solver(folder, 'net: "net.prototxt"\nbase_lr: 0.5\n  lr_policy: "fixed"\n\n')
        with pytest.raises(PrototxtError) as caught:
            load_solver(path)
        assert str(caught.value) == (
            f'{path}:3:3: max_iter is not given; add a line such as "max_iter: 10000"\n'
            '    3 |   lr_policy: "fixed"\n'
            "      |   ^^^^^^^^^^^^^^^^^^"
        )

    def test_states_merge_net_then_solver(self, folder: Path) -> None:
        (folder / "net.prototxt").write_text(NET + ' state { level: 2 stage: "own" }')
        text = (
            'net: "net.prototxt" train_state { stage: "t" } test_interval: 5 test_iter: 1 test_iter: 1 '
            'test_state { level: 7 } test_state { stage: "v" } '
        )
        loaded = load_solver(write_solver(folder, text + BASE))
        assert loaded.train_state == caffe_pb2.NetState(phase=caffe_pb2.TRAIN, level=2, stage=["own", "t"])
        assert loaded.test_states == (
            caffe_pb2.NetState(phase=caffe_pb2.TEST, level=7, stage=["own"]),
            caffe_pb2.NetState(phase=caffe_pb2.TEST, level=2, stage=["own", "v"]),
        )

    def test_net_inside_the_solver_is_upgraded(self, folder: Path) -> None:
        loaded = load_solver(write_solver(folder, f'net_param {{ layers {{ name: "r" type: RELU }} }} {BASE}'))
        assert loaded.train_net.layer[0].type == "ReLU"
        assert loaded.net_path is None

    def test_overrides_are_applied_before_the_checks(self, folder: Path) -> None:
        loaded = load_solver(
            write_solver(folder, 'net: "net.prototxt" base_lr: 0.5 lr_policy: "fixed"'), "max_iter: 3 stepvalue: 9"
        )
        assert (loaded.spec.max_iter, loaded.spec.stepvalue) == (3, (9,))

    def test_snapshot_prefix_defaults_to_the_solvers_path(self, folder: Path) -> None:
        path = write_solver(folder, f'net: "net.prototxt" {BASE}')
        assert load_solver(path).spec.snapshot_prefix == str(folder / "solver")
        assert load_solver(path, f'snapshot_prefix: "{folder}"').spec.snapshot_prefix == str(folder / "solver")
        assert load_solver(path, 'snapshot_prefix: "x/y"').spec.snapshot_prefix == "x/y"

    def test_weights_are_split_and_resolved(self, folder: Path) -> None:
        (folder / "a.caffemodel").write_bytes(b"")
        text = f'net: "net.prototxt" weights: "a.caffemodel, b.caffemodel" weights: "c" {BASE}'
        assert load_solver(write_solver(folder, text)).weights == (str(folder / "a.caffemodel"), "b.caffemodel", "c")

    def test_error_in_the_net_names_the_net(self, folder: Path) -> None:
        (folder / "net.prototxt").write_text("layr { }")
        with pytest.raises(PrototxtError, match=r'net\.prototxt:1:1: unknown field "layr" in the net'):
            load_solver(write_solver(folder, f'net: "net.prototxt" {BASE}'))


@pytest.mark.parametrize("case", sorted(path.parent.name for path in CAFFE.glob("solvers/*/solver.prototxt")))
def test_every_recorded_solver_loads(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CAFFE)
    loaded = load_solver(Path("solvers") / case / "solver.prototxt")
    assert loaded.net_path == Path("solvers") / case / "net.prototxt"
    assert len(loaded.test_nets) == len(loaded.spec.test_iter)
    assert loaded.spec.type == {"legacy_enum": "Nesterov"}.get(case, loaded.spec.message.type)
