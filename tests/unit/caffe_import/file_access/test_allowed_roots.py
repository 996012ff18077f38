"""Which files may be named: below the roots once links and ".." are followed, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest

from caffe_import.data.image_source import ImageSource, read_image_list
from caffe_import.data.layer_source import open_source
from caffe_import.data.transform import transform_options
from caffe_import.data.window_batches import open_windows
from caffe_import.data.window_file import read_window_file
from caffe_import.errors import CaffeImportError, DataSourceError, ForbiddenPathError, PrototxtError
from caffe_import.file_access.allowed_roots import AllowedRoots, allowed_roots_used, check_named_path, may_quote
from caffe_import.files.prototxt import parse_net, read_net
from caffe_import.net.net_spec import build_net_spec
from caffe_import.solver.loaded_solver import load_solver

SECRET = "root:$6$saltandhash:19000:0:99999:7:::\n"


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "shadow").write_text(SECRET)
    return tmp_path / "inside"


def roots(*folders: Path, is_enforced: bool = True) -> AllowedRoots:
    return AllowedRoots.of(folders, is_enforced=is_enforced)


def test_links_and_dots_are_followed_before_the_comparison(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = inside.parent / "outside"
    (inside / "link").symlink_to(outside / "shadow")
    (inside / "folder").symlink_to(outside)
    (inside / "back").symlink_to(inside)
    (inside.parent / "inside2").mkdir()
    allowed = roots(inside)
    monkeypatch.chdir(inside)
    for path in ("a", "deep/er", "back/a", "../inside/a", "folder/../inside/a", str(inside), f"{inside}/none/../b"):
        assert allowed.holds(path), path
    for path in ("link", "folder/shadow", "../outside/shadow", "..", "/etc/passwd", "../inside2/a", "folder/x", "a\0b"):
        assert not allowed.holds(path), path
    assert roots(Path("/")).holds("/etc/passwd")
    assert roots(inside / "folder").holds(outside / "shadow")  # a root may itself be a link


def test_outside_is_refused_or_warned_of_once_a_folder(inside: Path) -> None:
    shadow = inside.parent / "outside" / "shadow"
    with pytest.raises(ForbiddenPathError) as refused:
        roots(inside).check(shadow, named_by="s.prototxt: net")
    assert str(refused.value) == (
        f"s.prototxt: net names {shadow}, outside of the allowed folders {inside}: it is not read;"
        " move it there, or allow its folder"
    )
    warnings: list[str] = []
    warned = AllowedRoots.of([inside], is_enforced=False, warn=warnings.append)
    for name in ("shadow", "other", "shadow"):
        warned.check(shadow.with_name(name), named_by="s.prototxt: net")
    assert warnings == [f"s.prototxt: net names {shadow}, outside of the allowed folders {inside}"]
    warned.check("a\0b", named_by="s.prototxt: net")  # opening it says what is wrong
    (inside / "link").symlink_to(shadow)
    with pytest.raises(ForbiddenPathError, match=rf"names {inside}/link \({shadow}\), outside"):
        roots(inside).check(inside / "link", named_by="x")


def test_without_roots_everything_is_read_and_shown(inside: Path) -> None:
    check_named_path("/etc/passwd", named_by="x")
    assert may_quote("/etc/passwd")
    with allowed_roots_used(roots(inside)):
        assert not may_quote("/etc/passwd")
    assert may_quote("/etc/passwd")


def layer(text: str) -> object:
    return parse_net(f'layer {{ name: "d" top: "data" top: "label" {text} }}').layer[0]


def test_each_reader_of_a_named_file_asks(inside: Path) -> None:
    outside = inside.parent / "outside"
    cv2.imwrite(str(outside / "a.png"), np.zeros((4, 4, 3), np.uint8))
    with h5py.File(outside / "a.h5", "w") as file:
        file["data"], file["label"] = np.zeros((2, 3)), np.zeros(2)
    (inside / "list.txt").write_text("../outside/a.png 0\n")
    (inside / "h5.txt").write_text("../outside/a.h5\n")
    (inside / "w.txt").write_text("# 0\n../outside/a.png 3 4 4 2\n1 0.9 0 0 3 3\n0 0.1 0 0 3 3\n")
    (inside / "db").mkdir()
    (inside / "db" / "data.mdb").symlink_to(outside / "shadow")
    windows = layer(
        f"""type: "WindowData" transform_param {{ crop_size: 2 }} window_data_param {{ source: "w.txt" batch_size: 2
        root_folder: "{inside}/" fg_fraction: 0.5 }}"""
    )
    mean = layer('type: "Data" transform_param { mean_file: "../outside/shadow" }')
    loss = f"""layer {{ name: "x" type: "Input" top: "x" top: "l"
      input_param {{ shape {{ dim: 1 dim: 2 }} shape {{ dim: 1 }} }} }}
    layer {{ name: "i" type: "InfogainLoss" bottom: "x" bottom: "l"
      infogain_loss_param {{ source: "{outside}/shadow" }} }}"""
    data = 'type: "Data" data_param {{ backend: LMDB source: "{}" }}'
    rows = 'type: "HDF5Data" hdf5_data_param { source: "h5.txt" }'
    images = 'type: "ImageData" image_data_param {{ source: "{}" }}'
    readers = {
        "database": lambda: open_source(layer(data.format("../outside")), inside),
        "a database's file": lambda: open_source(layer(data.format("db")), inside),
        "image list": lambda: open_source(layer(images.format("../outside/shadow")), inside),
        "list, by itself": lambda: read_image_list(outside / "shadow"),
        "a listed image": lambda: open_source(layer(images.format("list.txt")), inside).read(0, 1),
        "a listed HDF5 file": lambda: open_source(layer(rows), inside),
        "window file": lambda: read_window_file(outside / "shadow", fg_threshold=0.5, bg_threshold=0.5),
        "a window's image": lambda: open_windows(windows, inside).check_first_image(),
        "mean": lambda: transform_options(mean.transform_param, root=inside),
        "infogain": lambda: build_net_spec(parse_net(loss), phase="TEST"),
    }
    refused = set()
    for name, read in readers.items():
        with allowed_roots_used(roots(inside)):
            try:
                read()
            except ForbiddenPathError:
                refused.add(name)
    assert refused == set(readers)
    with allowed_roots_used(roots(inside.parent)):
        assert len(open_source(layer(images.format("list.txt")), inside).read(0, 1)) == 2


def test_what_a_solver_names_is_looked_for_where_it_may_be_read(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = inside.parent / "outside"
    net = 'layer {{ name: "d" type: "Input" top: "{}" input_param {{ shape {{ dim: 1 }} }} }}'
    (elsewhere / "net.prototxt").write_text(net.format("theirs"))
    (inside / "net.prototxt").write_text(net.format("ours"))
    solver = inside / "solver.prototxt"
    solver.write_text('net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 weights: "../outside/shadow"')
    monkeypatch.chdir(elsewhere)
    with allowed_roots_used(roots(inside)), pytest.raises(ForbiddenPathError, match="weights names"):
        load_solver(solver)
    with allowed_roots_used(roots(inside)):
        assert list(load_solver(solver, 'weights: ""').train_net.layer[0].top) == ["ours"]
    with allowed_roots_used(roots(inside, is_enforced=False)):  # Caffe's own rule, with a warning
        assert list(load_solver(solver).train_net.layer[0].top) == ["theirs"]
    solver.write_text('net: "none.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1')
    with allowed_roots_used(roots(inside)), pytest.raises(PrototxtError, match="no such file"):
        load_solver(solver)


@pytest.mark.parametrize("is_enforced", [True, False])
def test_no_message_shows_words_of_a_file_outside(inside: Path, is_enforced: bool) -> None:
    shadow = inside.parent / "outside" / "shadow"
    broken = inside.parent / "outside" / "net.prototxt"
    broken.write_text('name: "hidden" layer { naem: "secret" }')
    windows = inside.parent / "outside" / "windows"
    windows.write_text("# 0\nsecret secret\n")
    readers = {
        broken: read_net,
        shadow: read_image_list,
        windows: lambda path: read_window_file(path, fg_threshold=0.5, bg_threshold=0.5),
    }
    for path, read in readers.items():
        with allowed_roots_used(roots(inside, is_enforced=is_enforced)), pytest.raises(CaffeImportError) as error:
            read(path)
        assert not {"secret", "hidden", "root", "$6$", "naem"} & set(str(error.value).replace('"', " ").split())
        assert "$6$" not in str(error.value)
    with allowed_roots_used(roots(inside)), pytest.raises(PrototxtError, match=r"net.prototxt:1:24: is no net's"):
        read_net(broken)
    with pytest.raises(PrototxtError, match="naem"):
        read_net(broken)


def test_a_text_that_is_no_net_is_not_shown_wherever_it_lies(tmp_path: Path) -> None:
    other = tmp_path / "compose.yaml"
    other.write_text("services:\n  web:\n    environment:\n      PASSWORD: hunter2\nname: x\n")
    with pytest.raises(PrototxtError) as error:
        read_net(other)
    assert str(error.value).startswith(f"{other}:1:1: is no net's prototxt from here on; its words are not shown")
    assert "hunter2" not in str(error.value)
    assert error.value.__cause__ is None


def test_a_look_costs_microseconds(inside: Path) -> None:
    allowed = roots(inside)
    deep = inside / "a" / "b" / "c"
    deep.mkdir(parents=True)
    names = [str(deep / f"{n}.jpg") for n in range(1000)]
    calls = []
    real = os.path.realpath
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os.path, "realpath", lambda path: calls.append(path) or real(path))
        assert all(allowed.holds(name) for name in names)
    assert len(calls) <= 1  # of the folder


def test_a_listed_image_inside_is_read_as_before(inside: Path) -> None:
    cv2.imwrite(str(inside / "a.png"), np.full((2, 2, 3), 7, np.uint8))
    source = ImageSource(read_image_list_of(inside), f"{inside}/", is_color=True)
    with allowed_roots_used(roots(inside)):
        assert source.read(0, 1)[0].tolist() == np.full((1, 3, 2, 2), 7).tolist()


def read_image_list_of(folder: Path) -> list[object]:
    (folder / "l.txt").write_text("a.png 1\n")
    return read_image_list(folder / "l.txt")


def test_a_bad_line_is_shown_where_the_list_may_be_read(inside: Path) -> None:
    (inside / "l.txt").write_text("a.png\n")
    with (
        allowed_roots_used(roots(inside)),
        pytest.raises(DataSourceError, match=r'l\.txt:1: "a.png" is not "path label"'),
    ):
        read_image_list(inside / "l.txt")
