import pytest

from deepspark_ops.run_view.run_files import find_snapshot_file, snapshot_files


@pytest.fixture
def run_dir(tmp_path):
    run = tmp_path / "runs" / "a run"
    for name in ("snapshots/net_iter_5.caffemodel.h5", "snapshots/net_iter_5.solverstate.h5",
                 "snapshots/net_iter_5.state.h5", "config.json"):  # fmt: skip
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return run


def test_a_snapshot_has_its_two_files_of_caffe_with_their_sizes(run_dir) -> None:
    files = snapshot_files(run_dir, "net_iter_5.caffemodel.h5")
    assert [(file.name, file.kind, file.bytes) for file in files] == [
        ("snapshots/net_iter_5.caffemodel.h5", "caffemodel", 34),
        ("snapshots/net_iter_5.solverstate.h5", "solverstate", 35),
    ]
    for unknown in ("net_iter_6.caffemodel.h5", "net_iter_5.caffemodel", "", "../a run/net_iter_5.caffemodel.h5"):
        assert snapshot_files(run_dir, unknown) == [], unknown


def test_every_file_that_is_listed_may_be_fetched(run_dir) -> None:
    for file in snapshot_files(run_dir, "net_iter_5.caffemodel.h5"):
        assert find_snapshot_file(run_dir, file.name.partition("/")[2]).read_text() == file.name


@pytest.mark.parametrize(
    "name",
    ["config.json", "net_iter_5.state.h5", "../config.json", "", ".", "/etc/passwd", "net_iter_6.caffemodel",
     "\0_iter_5.caffemodel",
     "../snapshots/net_iter_5.caffemodel.h5", "net_iter_5.caffemodel.h5/../../config.json"],
)  # fmt: skip
def test_nothing_else_is(run_dir, name) -> None:
    assert find_snapshot_file(run_dir, name) is None


def test_a_link_out_of_the_folder_is_not_followed(run_dir) -> None:
    (run_dir / "snapshots" / "net_iter_7.caffemodel").symlink_to(run_dir / "config.json")
    assert find_snapshot_file(run_dir, "net_iter_7.caffemodel") is None
