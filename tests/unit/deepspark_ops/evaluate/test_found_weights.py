import re

import pytest

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.found_weights import Weights, find_weights
from deepspark_ops.run_paths import RunPaths


@pytest.fixture
def run(tmp_path):
    run = RunPaths(tmp_path / "run")
    run.snapshots.mkdir(parents=True)
    run.config.touch()
    return run


def snapshot(run, iteration, *suffixes):
    for suffix in suffixes:
        run.snapshot("net", iteration, suffix).touch()


def test_last_whole_snapshot_is_found(run):
    snapshot(run, 9, "caffemodel", "state.h5")
    snapshot(run, 10, "caffemodel.h5", "state.h5")
    snapshot(run, 11, "caffemodel")  # its state was not written any more
    assert find_weights(run) == Weights(run.snapshot("net", 10, "caffemodel.h5"), 10)


def test_given_weights_come_first(run, tmp_path):
    (tmp_path / "w.caffemodel").touch()
    assert find_weights(run, tmp_path / "w.caffemodel") == Weights(tmp_path / "w.caffemodel", None)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda run: run.config.unlink(), ConfigError, "run_dir={root}: no config.json in it; give the folder that"),
        (lambda _: None, ConfigError, "run_dir={root}: no snapshot in snapshots/; training has not reached one"),
        (lambda run: snapshot(run, 3, "caffemodel"), ConfigError, "run_dir={root}: no snapshot in snapshots/"),
        (lambda run: snapshot(run, 3, "state.h5"), DataError, "{root}/snapshots: the state of iteration 3 is there"),
    ],
)
def test_what_is_missing_is_named(run, make, error, message):
    make(run)
    with pytest.raises(error, match=re.escape(message.format(root=run.root))):
        find_weights(run)


def test_missing_run_and_file_are_named(run, tmp_path):
    with pytest.raises(ConfigError) as caught:
        find_weights(RunPaths(tmp_path / "none"))
    assert str(caught.value) == (
        f'run_dir={tmp_path}/none: no such folder; give the folder that "deepspark train" wrote (option --run-dir)'
    )
    with pytest.raises(ConfigError, match=rf"^weights={tmp_path}/w.caffemodel: no such file$"):
        find_weights(run, tmp_path / "w.caffemodel")
