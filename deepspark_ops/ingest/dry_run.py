"""Report on the dataset that an ingestion would make: all labels are read, a sample goes into a scratch folder."""

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
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.files.source_folders import sources_limited
from deepspark_ops.ingest.findings import find_thin_classes, ordered
from deepspark_ops.ingest.image_plan import plan_images
from deepspark_ops.ingest.plan import DatasetPlan
from deepspark_ops.ingest.recipe import Recipe, make_recipe
from deepspark_ops.ingest.records import Rejection
from deepspark_ops.ingest.shard_task import ShardResult
from deepspark_ops.ingest.sources.registry import with_own_splits
from deepspark_ops.shards.files.shard_records import LOOK_COLUMNS, read_records, records_path

DRY_RUN_VERSION: Final = 1
SAMPLED_IMAGES: Final = 500
"""Number of images that go into the scratch folder, of all splits together."""
SAMPLED_ROWS: Final = 10_000
"""Number of rows of a table: the fixed bytes of a shard must not hide the bytes of a row."""
_NAMED: Final = 5


@dataclass(frozen=True)
class _Sample:
    """A task with a share of its records, the task's result and run time."""

    task: Any
    result: ShardResult
    seconds: float


def dry_run(config: IngestConfig) -> dict[str, Any]:
    """Return a report on the dataset of a config, as JSON values; nothing is written to ``config.output``.

    Counts of records, classes and splits are exact, and a table's warnings. Sizes of images, an image's warnings, bytes
    and time are those of a sample.

    Raises:
        ConfigError: Options do not fit the source.
        DataError: No record can be used, or the source is damaged.
        DeepSparkError: Spark cannot read a table.
    """
    with sources_limited(config), tempfile.TemporaryDirectory(prefix="deepspark-") as scratch:
        config = with_own_splits(config)
        recipe = make_recipe(config, is_preview=True)
        work = Path(scratch) / "work"
        work.mkdir()
        # The report, and not an error, says that too many records are bad.
        update = {"output": Path(scratch) / "dataset", "previous": None, "max_rejected_fraction": 1.0}
        started = time.monotonic()
        plan = _plan(config.model_copy(update=update), recipe, work)
        read_s = 0.0 if plan.table is None else time.monotonic() - started
        n_wanted = SAMPLED_IMAGES if plan.table is None else SAMPLED_ROWS
        share = min(1.0, n_wanted / sum(plan.n_samples.values()))
        samples = [_run(plan, task.sample(share)) for task in plan.tasks]
        return _report(config, plan, samples, read_s, recipe.sources["train"].format)


def _plan(config: IngestConfig, recipe: Recipe, work: Path) -> DatasetPlan[Any]:
    if recipe.sources["train"].format not in TABLE_FORMATS:
        return plan_images(config, recipe, work, is_preview=True)
    from deepspark_ops.ingest.spark_job import plan_table_on_this_host  # images need no Spark

    return plan_table_on_this_host(config, recipe, work)


def _run(plan: DatasetPlan[Any], task: Any) -> _Sample:
    started = time.monotonic()
    result = plan.run(task)
    if result.error is not None:
        raise DataError(result.error)
    return _Sample(task, result, time.monotonic() - started)


def _report(
    config: IngestConfig, plan: DatasetPlan[Any], samples: list[_Sample], read_s: float, source_format: str
) -> dict[str, Any]:
    n_sampled = sum(sample.result.n_samples for sample in samples)
    total = sum(plan.n_samples.values())
    cores = os.cpu_count() or 1
    write_s = sum(sample.seconds for sample in samples) / max(1, n_sampled) * total / cores
    warnings = Counter(kind for sample in samples for kind in sample.result.findings.counts.elements())
    listed = Counter(kind for findings in plan.findings.values() for kind in findings.counts.elements())
    if plan.n_classes:
        listed.update(find_thin_classes(plan.label_counts["train"], plan.class_names).counts)
    rejected = [item for items in plan.rejected.values() for item in items]
    n_rejected = sum(plan.n_rejected.values())
    unreadable = [item for sample in samples for item in sample.result.rejected]
    n_tried = sum(sample.task.n_records for sample in samples)
    rejected_share = (n_rejected + len(unreadable) / max(1, n_tried) * total) / max(1, plan.n_records)
    return {
        "format_version": DRY_RUN_VERSION,
        "source": str(config.source),
        "format": source_format,
        "sample_shape": list(plan.sample_shape),
        "class_names": list(plan.class_names),
        "splits": {
            split: {"n_samples": count, "label_histogram": plan.label_counts[split].tolist()}
            for split, count in plan.n_samples.items()
        },
        "chosen": {split: dict(counts) for split, counts in plan.counts.items()},
        "rejected": {"n_records": n_rejected, "first": _named(rejected)},
        "warnings": ordered(listed),
        "sampled": {
            "n_records": n_tried,
            "n_rejected": len(unreadable),
            "first_rejected": _named(unreadable),
            "warnings": ordered(warnings),
            "sizes": None if plan.table else _sizes(samples),
        },
        "would_fail": rejected_share > config.max_rejected_fraction,
        "estimate": {
            "n_bytes": round(sum(sample.result.n_bytes for sample in samples) / max(1, n_sampled) * total),
            "seconds": float(f"{read_s + write_s:.3g}"),
            "cores": cores,
        },
    }


def _named(items: list[Rejection]) -> list[str]:
    return [f"{item.name}: {item.reason}" for item in items[:_NAMED]]


def _sizes(samples: list[_Sample]) -> Mapping[str, list[int]] | None:
    """Return smallest, middle and largest height and width of the images in the source; None where unknown."""
    looks = [read_records(records_path(sample.task.path)).looks for sample in samples if sample.result.n_samples]
    sizes = np.concatenate(looks)[:, LOOK_COLUMNS.index("height") : LOOK_COLUMNS.index("width") + 1] if looks else None
    if sizes is None or not len(sizes := sizes[(sizes > 0).all(axis=1)]):
        return None
    quantiles = np.percentile(sizes, [0, 50, 100], axis=0, method="nearest").astype(int)
    return {"height": quantiles[:, 0].tolist(), "width": quantiles[:, 1].tolist()}
