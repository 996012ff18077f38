"""Time that this process needs for the tasks of an ingestion, by a sample of their records."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from deepspark_ops.ingest.plan import DatasetPlan
from deepspark_ops.ingest.shard_task import ShardTask

_SAMPLES: Final = (1, 10, 100, 1_000)
"""Records of the samples. The fixed time of a shard counts for each record, so that large samples say less time."""
_LONGEST_SAMPLE_S: Final = 0.5


def seconds_at_most(plan: DatasetPlan[ShardTask], limit_s: float) -> float | None:
    """Return the seconds of the plan's tasks in this process; None for more than ``limit_s``, by samples that grow.

    The samples are shards in a temporary folder, of the largest task's records, and take about half a second, or one
    record.
    """
    n_records = sum(task.n_records for task in plan.tasks)
    if not n_records:
        return 0.0
    task = max(plan.tasks, key=lambda task: task.n_records)
    sample_s = 0.0
    with tempfile.TemporaryDirectory(prefix="deepspark-") as folder:
        for n_sampled in sorted({min(size, task.n_records) for size in _SAMPLES}):
            if 10 * sample_s > _LONGEST_SAMPLE_S:
                return None
            sample = replace(task.sample(n_sampled / task.n_records), path=Path(folder, str(n_sampled), task.path.name))
            sample.path.parent.mkdir(exist_ok=True)
            started = time.monotonic()
            plan.run(sample)
            sample_s = time.monotonic() - started
            all_s = sample_s / n_sampled * n_records
            if all_s <= limit_s:
                return all_s
    return None
