"""From written shards of a table to manifests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.commit import (
    HDF5_LIST_NAME,
    REJECTED_NAME,
    check_findings,
    remove_shard,
    remove_unlisted,
    write_rejected,
)
from deepspark_ops.ingest.dataset_findings import find_thin_classes
from deepspark_ops.ingest.findings import WARNINGS_NAME, Findings, ordered, write_warnings
from deepspark_ops.ingest.plan import Recipe
from deepspark_ops.ingest.selection.splits import split_rule
from deepspark_ops.ingest.tables.known_files import SeenFiles, write_seen_files
from deepspark_ops.ingest.tables.planning.table_plan import TablePlan
from deepspark_ops.ingest.tables.table_shards import TableShardResult
from deepspark_ops.ingest.versions.kept_versions import files_of_versions, keep_version, version_digest
from deepspark_ops.ingest.versions.stored_shard import files_of, link_files
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.hdf5_shard import write_hdf5_list
from deepspark_ops.shards.manifest import (
    SPLITS,
    DatasetManifest,
    FileRecord,
    ShardRecord,
    SplitName,
    sha256_of_file,
    write_manifest,
)
from deepspark_ops.shards.row_records import rows_path
from deepspark_ops.stores.store_path import StorePath
from deepspark_ops.stores.writing import local_output, remove_tree


def commit_table(
    config: IngestConfig, recipe: Recipe, plan: TablePlan, results: Sequence[TableShardResult]
) -> dict[SplitName, DatasetManifest]:
    """Write what the manifests name, then the manifests, then remove what no manifest names any more.

    Raises:
        DataError: A shard could not be written, or ``strict`` refuses what was found. Shards written by this ingestion
            are removed; a dataset committed before stays as it was.
    """
    findings = dict(plan.findings)
    try:
        if errors := [result.error for result in results if result.error is not None]:
            more = f" (and {len(errors) - 1} more shards)" if len(errors) > 1 else ""
            raise DataError(errors[0] + more)  # noqa: TRY301 - as for a finding below, what was written goes
        if plan.shared.n_classes:
            findings["train"].merge(find_thin_classes(_histogram(plan, results, "train"), plan.class_names))
        check_findings(config, findings)
    except DataError:
        discard_table(plan)
        raise
    for name in (REJECTED_NAME, WARNINGS_NAME):
        (config.output / name).unlink(missing_ok=True)
    if plan.base is not None and plan.base.folder == config.output:
        keep_version(config.output)
    previous = None if plan.base is None else version_digest(plan.base.folder)
    manifests = {}
    seen = None if plan.seen is None else _write_seen(config, recipe, plan.seen)
    for split in plan.splits():
        manifest = _manifest(config, recipe, plan, results, split).model_copy(
            update={
                "previous": previous,
                "source_files": seen if split == "train" else None,
                "warnings": ordered(findings[split].counts),
                "warnings_file": WARNINGS_NAME if findings[split].counts else None,
            }
        )
        _commit_split(config, plan, manifest, findings[split])
        manifests[split] = manifest
    paths = DatasetPaths(config.output)
    for of_images in (paths.mean(), paths.contact_sheet):
        of_images.unlink(missing_ok=True)
    for split in set(SPLITS) - set(manifests):
        remove_tree(paths.split(split))
    return manifests


def discard_table(plan: TablePlan) -> None:
    """Remove the shards of an ingestion that is given up."""
    for task in plan.tasks:
        remove_shard(task.path)
        remove_shard(rows_path(task.path))


def _write_seen(config: IngestConfig, recipe: Recipe, seen: SeenFiles) -> FileRecord:
    """Write what is kept of the table's files beside the training set's shards."""
    target = DatasetPaths(config.output).split("train") / f"files-{recipe.sha256[:8]}.npz"
    with local_output(target) as path:
        write_seen_files(path, seen)
        return FileRecord(file=target.name, sha256=sha256_of_file(path))


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
        rejected_file=REJECTED_NAME if plan.rejected.get(split) else None,
        n_bytes=sum(shard.n_bytes for shard in shards),
        split_rule=rule and rule.model_copy(update={"by": "row_hash" if rule.by == "name_hash" else rule.by}),
        chosen=dict(plan.counts.get(split, {})),
        table=plan.shared.columns,
    )


def _commit_split(config: IngestConfig, plan: TablePlan, manifest: DatasetManifest, findings: Findings) -> None:
    split = manifest.split
    folder = DatasetPaths(config.output).split(split)
    if plan.base is not None and plan.base.folder != config.output:
        for shard in plan.changes[split].carried:
            link_files(DatasetPaths(plan.base.folder).split(split), files_of(shard), folder)
    if findings.counts:
        write_warnings(folder / WARNINGS_NAME, findings.named)
    if rejected := plan.rejected.get(split):
        write_rejected(folder / REJECTED_NAME, rejected)
    if not isinstance(folder, StorePath):  # Caffe reads local files
        write_hdf5_list(folder / HDF5_LIST_NAME, [folder / shard.file for shard in manifest.shards])
    write_manifest(folder, manifest)
    remove_unlisted(folder, manifest, in_use=files_of_versions(config.output, split))
