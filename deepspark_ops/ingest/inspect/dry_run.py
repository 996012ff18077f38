"""What an ingestion would make of a source: all labels are read, some records are ingested into a scratch folder."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.config.shared_options.source_formats import TABLE_FORMATS
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.source_folders import sources_limited
from deepspark_ops.ingest.findings import find_thin_classes, ordered
from deepspark_ops.ingest.plan import DatasetPlan, make_recipe, plan_ingest
from deepspark_ops.ingest.records import Rejection
from deepspark_ops.ingest.shard_task import ShardResult, ShardTask, run_shard_task
from deepspark_ops.ingest.sources.registry import with_own_splits
from deepspark_ops.shards.manifest import SplitName
from deepspark_ops.shards.shard_records import LOOK_COLUMNS, read_records, records_path

DRY_RUN_VERSION: Final = 1
SAMPLED: Final = 500
"""Records that are ingested for the look, of all splits together."""
_NAMED: Final = 5


@dataclass(frozen=True)
class _Sampled:
    task: ShardTask
    result: ShardResult
    seconds: float


def dry_run(config: IngestConfig) -> dict[str, Any]:
    """Return what an ingestion would make, as JSON values; nothing is written to ``config.output``.

    Counts of records, classes and splits are exact; sizes of images, warnings, bytes and time are those of a sample.

    Raises:
        ConfigError: Options that do not fit the source.
        DataError: No usable record, or a damaged source.
    """
    with sources_limited(config):
        return _dry_run(config)


def _dry_run(config: IngestConfig) -> dict[str, Any]:
    config = with_own_splits(config)
    recipe = make_recipe(config, is_preview=True)
    source_format = recipe.sources["train"].format
    if source_format in TABLE_FORMATS:
        msg = (
            f"source={config.source}: dry_run looks at images, a table is read by Spark; try it with limit=1000 and an"
            " output of its own"
        )
        raise ConfigError(msg)
    with tempfile.TemporaryDirectory(prefix="deepspark-") as scratch:
        work = Path(scratch) / "work"
        work.mkdir()
        scratch_config = config.model_copy(update={"output": Path(scratch) / "dataset", "previous": None})
        plan = plan_ingest(scratch_config, recipe, work, is_preview=True)
        sampled = [_run(task) for task in _some(plan)]
        return _report(config, plan, sampled, source_format)


def _some(plan: DatasetPlan[ShardTask]) -> list[ShardTask]:
    """Return the tasks with few of their records, evenly spaced."""
    total = sum(len(task.positions) for task in plan.tasks)
    share = min(1.0, SAMPLED / total)
    tasks = []
    for task in plan.tasks:
        n_records = max(1, round(share * len(task.positions)))
        tasks.append(task.subset(np.unique(np.linspace(0, len(task.positions) - 1, n_records).astype(np.int64))))
    return tasks


def _run(task: ShardTask) -> _Sampled:
    started = time.monotonic()
    result = run_shard_task(task)
    if result.error is not None:
        raise DataError(result.error)
    return _Sampled(task, result, time.monotonic() - started)


def _report(
    config: IngestConfig, plan: DatasetPlan[ShardTask], sampled: list[_Sampled], source_format: str
) -> dict[str, Any]:
    n_records = {
        split: sum(len(task.positions) for task in plan.tasks if task.split == split) for split in plan.splits()
    }
    n_sampled = sum(one.result.n_samples for one in sampled)
    seconds = sum(one.seconds for one in sampled)
    total = sum(n_records.values())
    cores = os.cpu_count() or 1
    warnings = Counter(kind for one in sampled for kind in one.result.findings.counts.elements())
    listed = Counter(kind for found in plan.findings.values() for kind in found.counts.elements())
    train = _labels(plan, "train")
    listed.update(find_thin_classes(train, plan.class_names).counts)
    rejected = [item for items in plan.rejected.values() for item in items]
    unreadable = [item for one in sampled for item in one.result.rejected]
    tried = sum(len(one.task.positions) for one in sampled)
    share = (len(rejected) + len(unreadable) / max(1, tried) * total) / max(1, plan.n_records)
    return {
        "format_version": DRY_RUN_VERSION,
        "source": str(config.source),
        "format": source_format,
        "sample_shape": list(plan.tasks[0].shape),
        "class_names": list(plan.class_names),
        "splits": {
            split: {"n_samples": count, "label_histogram": _labels(plan, split).tolist()}
            for split, count in n_records.items()
        },
        "chosen": {split: dict(counts) for split, counts in plan.counts.items()},
        "rejected": {"n_records": len(rejected), "first": _named(rejected)},
        "warnings": ordered(listed),
        "sampled": {
            "n_records": tried,
            "n_rejected": len(unreadable),
            "first_rejected": _named(unreadable),
            "warnings": ordered(warnings),
            "sizes": _sizes(sampled),
        },
        "would_fail": share > config.max_rejected_fraction,
        "estimate": {
            "n_bytes": round(_bytes(sampled, n_records)),
            "seconds": round(seconds / max(1, n_sampled) * total / cores, 2),
            "cores": cores,
        },
    }


def _labels(plan: DatasetPlan[ShardTask], split: SplitName) -> np.ndarray[Any, np.dtype[np.int64]]:
    counts = [np.bincount(task.labels, minlength=plan.n_classes) for task in plan.tasks if task.split == split]
    total: np.ndarray[Any, np.dtype[np.int64]] = np.sum(counts, axis=0)
    return total


def _bytes(sampled: list[_Sampled], n_records: Mapping[SplitName, int]) -> float:
    n_samples = sum(one.result.n_samples for one in sampled)
    return sum(one.result.n_bytes for one in sampled) / max(1, n_samples) * sum(n_records.values())


def _named(items: list[Rejection]) -> list[str]:
    return [f"{item.name}: {item.reason}" for item in items[:_NAMED]]


def _sizes(sampled: list[_Sampled]) -> dict[str, list[int]] | None:
    """Return smallest, middle and largest height and width of the images as they came; None where unknown."""
    looks = [read_records(records_path(one.task.path)).looks for one in sampled if one.result.n_samples]
    sizes = np.concatenate(looks)[:, LOOK_COLUMNS.index("height") : LOOK_COLUMNS.index("width") + 1] if looks else None
    if sizes is None or not len(sizes := sizes[(sizes > 0).all(axis=1)]):
        return None
    found = np.percentile(sizes, [0, 50, 100], axis=0, method="nearest").astype(int)
    return {"height": found[:, 0].tolist(), "width": found[:, 1].tolist()}
