"""A single rename makes all splits of a version visible: after a failure before the rename, the version before is
whole.
"""

import errno
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import DataError, DeepSparkError
from deepspark_ops.ingest.inspect.whole import verify_dataset
from deepspark_ops.shards.manifest import DatasetRoot, present_splits, read_manifest, read_root, write_root
from deepspark_ops.shards.reader import open_dataset
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images
from tests.reference.table_files import a_table, counted_rows, ingest_parts, write_table

NAMING = ("rename", "replace", "link", "chmod")
"""Calls by which files get to their names."""
STEPS = ("fsync", *NAMING)
"""Calls by which files get to the disk and to their names."""


class Steps:
    """Counts the calls of some names; the call with a number fails in a way that the test chooses.

    Nothing is synced: a killed process loses no page of the system's cache, and hundreds of syncs take a minute.
    """

    def __init__(self, fails_at: int, failure: Callable[[], None], names: Sequence[str] = STEPS) -> None:
        self.count, self._fails_at, self._failure, self._names = 0, fails_at, failure, names

    @contextmanager
    def watched(self):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda *_: None)
            for name in self._names:
                patch.setattr(os, name, self._step(getattr(os, name)))
            yield self

    def _step(self, call):
        def step(*args, **options):
            self.count += 1
            if self.count == self._fails_at:
                self._failure()
            return call(*args, **options)

        return step


def no_room() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def image_version(tmp_path: Path, **options):
    source = tmp_path / "raw" / "list.txt"
    source = source if source.is_file() else write_images(tmp_path / "raw", 24)
    usual = {"source": source, "output": tmp_path / "out", "samples_per_shard": 10, "validation_fraction": 0.2}
    return ingest(IngestConfig(**{**usual, **options}), tmp_path / "work")


def table_version(tmp_path: Path, **options):
    write_table(tmp_path / "t.parquet", a_table(40))
    usual = {"source": tmp_path / "t.parquet", "output": tmp_path / "out", "feature_columns": "f*", "id_column": "id"}
    config = IngestConfig(**{**usual, "validation_fraction": 0.2, "label_column": "label", **options})
    return ingest_parts(config, [a_table(40)], tmp_path / "work")


def image_samples(folder: Path, split: str) -> set:
    with open_dataset(folder / split) as dataset:
        images = [dataset.read(number, 0, shard.n_samples)[0] for number, shard in enumerate(dataset.shards)]
    return {image.tobytes() for of_shard in images for image in of_shard}


def table_samples(folder: Path, split: str) -> set:
    return set(counted_rows(folder, split))


KINDS = {"images": (image_version, image_samples), "table": (table_version, table_samples)}


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def require_one_version(folder: Path, samples) -> None:
    verify_dataset(folder, lambda _: None)
    splits = present_splits(folder)
    assert splits == ["train", "validation", "test"]
    assert len({read_manifest(folder / split).recipe_sha256 for split in splits}) == 1
    of_split = [samples(folder, split) for split in splits]
    assert sum(map(len, of_split)) == len(set.union(*of_split)), "a sample is in two splits"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["images", pytest.param("table", marks=pytest.mark.long)])
def test_a_full_disk_at_any_step_leaves_the_version_before_and_no_new_file(tmp_path, kind):
    version, samples = KINDS[kind]
    version(tmp_path, seed=1)
    shutil.copytree(tmp_path / "out", tmp_path / "old")
    old, old_files = version_id(tmp_path), files(tmp_path / "out")
    with Steps(0, no_room).watched() as steps:
        version(tmp_path / "counted", seed=2)
    n_ends = [0, 0]
    for number in range(1, 3 * steps.count):
        with Steps(number, no_room).watched() as tried:
            with suppress(OSError, DeepSparkError):
                version(tmp_path, seed=2)
        require_one_version(tmp_path / "out", samples)
        is_new = version_id(tmp_path) != old
        n_ends[is_new] += 1
        if not is_new:
            assert files(tmp_path / "out") == old_files
        else:
            restore(tmp_path)
        if tried.count < number:
            break
    assert min(n_ends) > 0
    assert tried.count < number


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["images", pytest.param("table", marks=pytest.mark.long)])
def test_a_kill_at_any_step_leaves_a_version_that_is_whole(tmp_path, kind):
    version, samples = KINDS[kind]
    version(tmp_path, seed=1)
    shutil.copytree(tmp_path / "out", tmp_path / "old")
    old = version_id(tmp_path)
    ends = set()
    for number in range(1, 200):
        process = os.fork()
        if not process:
            # A kill before a sync leaves the names of files as a kill before the next new name.
            with Steps(number, killed, NAMING).watched():
                version(tmp_path, seed=2)
            os._exit(0)
        _, status = os.waitpid(process, 0)
        require_one_version(tmp_path / "out", samples)
        ends.add((status != 0, version_id(tmp_path) != old))
        if not status:
            break
        if version_id(tmp_path) != old:
            restore(tmp_path)
    assert {(True, False), (False, True)} <= ends
    restore(tmp_path)
    version(tmp_path, seed=2)
    leftovers = {name for name in files(tmp_path / "out") if not name.startswith("versions/")}
    assert not {name for name in leftovers if name.endswith(".tmp")}


def restore(tmp_path: Path) -> None:
    """Put the old version back; otherwise each test's end is slower than its begin by a hundred kept versions."""
    shutil.rmtree(tmp_path / "out")
    shutil.copytree(tmp_path / "old", tmp_path / "out")


def version_id(tmp_path: Path) -> str:
    return read_manifest(tmp_path / "out" / "train").recipe_sha256


@pytest.mark.parametrize("kind", KINDS)
def test_splits_of_two_ingestions_are_refused(tmp_path, kind):
    version, _ = KINDS[kind]
    version(tmp_path, seed=1)
    version(tmp_path / "other", seed=2)
    shutil.copytree(tmp_path / "other" / "out" / "test", tmp_path / "out" / "test", dirs_exist_ok=True)
    roots = [read_root(folder / "out").splits for folder in (tmp_path, tmp_path / "other")]
    write_root(tmp_path / "out", DatasetRoot(splits={**roots[0], "test": roots[1]["test"]}))
    with pytest.raises(DataError, match="ingestions with other sources or options"):
        verify_dataset(tmp_path / "out", lambda _: None)
