import pytest

from deepspark_ops.run_view.run_files import bundle_files, find_file, snapshot_files


@pytest.fixture
def run_dir(tmp_path):
    run = tmp_path / "runs" / "a run"
    for name in ("snapshots/net_iter_5.caffemodel.h5", "snapshots/net_iter_5.solverstate.h5",
                 "snapshots/net_iter_5.state.h5", "bundle/manifest.json", "bundle/saved_model/variables/x.index",
                 "bundle/weights.caffemodel", "config.json"):  # fmt: skip
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "secret").write_text("secret")
    return run


def test_a_snapshot_has_its_two_files_of_caffe_with_their_sizes(run_dir) -> None:
    found = snapshot_files(run_dir, "net_iter_5.caffemodel.h5")
    assert [(file.name, file.kind, file.bytes) for file in found] == [
        ("snapshots/net_iter_5.caffemodel.h5", "caffemodel", 34),
        ("snapshots/net_iter_5.solverstate.h5", "solverstate", 35),
    ]
    for unknown in ("net_iter_6.caffemodel.h5", "net_iter_5.caffemodel", "", "../a run/net_iter_5.caffemodel.h5"):
        assert snapshot_files(run_dir, unknown) == [], unknown


def test_a_bundle_is_listed_with_its_top_folder_first(run_dir) -> None:
    assert [file.kind for file in bundle_files(run_dir)] == [
        "manifest.json", "weights.caffemodel", "saved_model/variables/x.index",
    ]  # fmt: skip
    assert bundle_files(run_dir.parent) == []


def test_every_file_that_is_listed_may_be_fetched(run_dir) -> None:
    for file in (*bundle_files(run_dir), *snapshot_files(run_dir, "net_iter_5.caffemodel.h5")):
        assert find_file(run_dir, file.name).read_text() == file.name


@pytest.mark.parametrize(
    "name",
    ["config.json", "snapshots/net_iter_5.state.h5", "snapshots/../config.json", "bundle/../config.json", "bundle",
     "bundle/", "bundle/saved_model", "bundle/../../../secret", "../../secret", "/etc/passwd", "bundle//etc/passwd", "",
     "bundle/\0", "snapshots/x/../../config.json", "evaluation/report.html"],
)  # fmt: skip
def test_nothing_else_is(run_dir, name) -> None:
    assert find_file(run_dir, name) is None


def test_a_link_out_of_the_run_is_not_followed(run_dir) -> None:
    (run_dir / "bundle" / "linked").symlink_to(run_dir.parents[1] / "secret")
    (run_dir / "snapshots" / "net_iter_7.caffemodel").symlink_to(run_dir / "config.json")
    assert find_file(run_dir, "bundle/linked") is None
    assert find_file(run_dir, "snapshots/net_iter_7.caffemodel") is None
    assert "linked" not in [file.kind for file in bundle_files(run_dir)]
