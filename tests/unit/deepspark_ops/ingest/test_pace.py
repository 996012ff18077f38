"""Estimates of the time of an ingestion in this process, by samples that grow."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest import pace
from deepspark_ops.ingest.image_plan import plan_images
from deepspark_ops.ingest.recipe import make_recipe
from tests.reference.raw_sources import write_images

RECORDS = 400
OF_LARGEST_TASK = 200


class Tasks:
    """A plan of real tasks; a run of ``n`` records takes ``shard_s + n * record_s`` seconds of the test's clock."""

    def __init__(self, tmp_path: Path, shard_s: float, record_s: float) -> None:
        config = IngestConfig(
            source=write_images(tmp_path / "raw", RECORDS),
            output=tmp_path / "out",
            test_fraction=0,
            samples_per_shard=OF_LARGEST_TASK,
        )
        self._shard_s, self._record_s = shard_s, record_s
        plan = plan_images(config, make_recipe(config), tmp_path / "work")
        self.sampled: list[int] = []
        self.now = 0.0
        self.plan = replace(plan, run=self._run)

    def _run(self, task):
        self.sampled.append(task.n_records)
        assert task.path.parent.is_dir()
        self.now += self._shard_s + task.n_records * self._record_s


@pytest.mark.parametrize(
    ("shard_s", "record_s", "limit_s", "sampled", "seconds"),
    [
        (0.0, 0.001, 5.0, [1], 0.4),  # fast by the first record
        (0.02, 0.0001, 5.0, [1, 10], 400 * 0.0021),  # the fixed time counts less for each of ten records
        (0.0, 0.02, 5.0, [1, 10], None),  # 400 take 8 s; the next sample would take 2 s
        (0.0, 1.0, 5.0, [1], None),  # one record takes a second
        (0.01, 0.0003, 0.13, [1, 10, 100, OF_LARGEST_TASK], None),
        (0.01, 0.0003, 0.15, [1, 10, 100, OF_LARGEST_TASK], 0.14),
    ],
)
def test_samples_grow_until_they_say_that_the_time_suffices(
    tmp_path, monkeypatch, shard_s, record_s, limit_s, sampled, seconds
):
    (tmp_path / "work").mkdir()
    tasks = Tasks(tmp_path, shard_s, record_s)
    monkeypatch.setattr(time, "monotonic", lambda: tasks.now)
    assert pace.seconds_at_most(tasks.plan, limit_s) == (None if seconds is None else pytest.approx(seconds))
    assert tasks.sampled == sampled
    assert not (tmp_path / "out").exists()


def test_nothing_to_write_takes_no_time(tmp_path):
    (tmp_path / "work").mkdir()
    tasks = Tasks(tmp_path, 1.0, 1.0)
    assert pace.seconds_at_most(replace(tasks.plan, tasks=()), 5.0) == 0.0
    assert tasks.sampled == []
