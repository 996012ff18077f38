"""From written shards of a table to manifests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.commit import NewSplit, check_findings, publish, undone_on_failure
from deepspark_ops.ingest.dataset_findings import find_thin_classes
from deepspark_ops.ingest.plan import Recipe
from deepspark_ops.ingest.selection.splits import split_rule
from deepspark_ops.ingest.tables.known_files import write_seen_files
from deepspark_ops.ingest.tables.planning.table_plan import TablePlan
from deepspark_ops.ingest.tables.table_shards import TableShardResult
from deepspark_ops.ingest.versions.kept_versions import version_digest
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.manifest import (
    DatasetManifest,
    FileRecord,
    ShardRecord,
    SplitName,
    write_by_digest,
)
from deepspark_ops.shards.row_records import rows_path


def commit_table(
    config: IngestConfig, recipe: Recipe, plan: TablePlan, results: Sequence[TableShardResult]
) -> dict[SplitName, DatasetManifest]:
    """Make the dataset of what the tasks of a plan wrote, as ``commit_dataset`` does.

    Raises:
        DataError: A shard could not be written, or ``strict`` refuses what was found.
        OSError: A file could not be written.
    """
    findings = dict(plan.findings)
    with undone_on_failure(config.output):
        if errors := [result.error for result in results if result.error is not None]:
            more = f" (and {len(errors) - 1} more shards)" if len(errors) > 1 else ""
            raise DataError(errors[0] + more)
        if plan.shared.n_classes:
            findings["train"].merge(find_thin_classes(_histogram(plan, results, "train"), plan.class_names))
        check_findings(config, findings)
        seen: FileRecord | None = None
        if (seen_files := plan.seen) is not None:
            train = DatasetPaths(config.output).split("train")
            seen = write_by_digest(train, "files.npz", lambda path: write_seen_files(path, seen_files))
        base = None if plan.base is None else plan.base.folder
        previous = None if base is None else version_digest(base)
        new = []
        for split in plan.splits():
            update = {"previous": previous, "source_files": seen if split == "train" else None}
            manifest = _manifest(config, recipe, plan, results, split).model_copy(update=update)
            new.append(NewSplit(manifest, plan.rejected.get(split, ()), findings[split], base))
        return publish(config.output, new)


def _histogram(plan: TablePlan, results: Sequence[TableShardResult], split: SplitName) -> npt.NDArray[np.int64]:
    """Return the labels of a split, (n_classes,), of what stays and what was written."""
    counts = [np.array(result.label_counts, np.int64) for result in results if result.split == split]
    if split in plan.carried_counts:
        counts.append(plan.carried_counts[split])
    found: npt.NDArray[np.int64] = np.sum(counts, axis=0)
    return found


def _manifest(
    config: IngestConfig, recipe: Recipe, plan: TablePlan, results: Sequence[TableShardResult], split: SplitName
) -> DatasetManifest:
    """Return the manifest of a split without its warnings."""
    paths = {task.number: task.path for task in plan.tasks if task.split == split}
    carried = plan.changes[split].carried if split in plan.changes else ()
    shards = carried + tuple(
        ShardRecord(
            file=paths[result.number].name,
            sha256=result.sha256,
            n_samples=result.n_samples,
            n_bytes=result.n_bytes,
            rows=FileRecord(file=rows_path(paths[result.number]).name, sha256=result.rows_sha256),
            version=plan.version,
        )
        for result in sorted(results, key=lambda result: result.number)
        if result.split == split
    )
    rule = split_rule(config) if len(plan.splits()) > 1 else None
    return DatasetManifest(
        split=split,
        splits=tuple(plan.splits()),
        shard_format="hdf5",
        encoded=False,
        source=recipe.source(split),
        recipe_sha256=recipe.sha256,
        options=dict(recipe.options),
        version=plan.version,
        sample_shape=(plan.shared.columns.n_features,),
        n_samples=sum(shard.n_samples for shard in shards),
        n_classes=plan.shared.n_classes,
        class_names=plan.class_names,
        label_histogram=tuple(_histogram(plan, results, split).tolist()) if plan.shared.n_classes else (),
        mean_values=(),
        shards=shards,
        n_rejected=plan.n_rejected.get(split, 0),
        n_bytes=sum(shard.n_bytes for shard in shards),
        split_rule=rule and rule.model_copy(update={"by": "row_hash" if rule.by == "name_hash" else rule.by}),
        chosen=dict(plan.counts.get(split, {})),
        table=plan.shared.columns,
    )
