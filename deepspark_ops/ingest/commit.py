"""The end of an ingestion: are the results good enough, and if so, one rename per split makes them the dataset."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from caffe_import.files.mean_file import write_mean
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.dataset_findings import find_duplicates, find_thin_classes
from deepspark_ops.ingest.findings import WARNINGS_NAME, Findings, ordered, refused, summary, write_warnings
from deepspark_ops.ingest.images.mean import mean_image, mean_values
from deepspark_ops.ingest.plan import IngestPlan, Recipe
from deepspark_ops.ingest.records import Rejection
from deepspark_ops.ingest.selection.splits import split_rule
from deepspark_ops.ingest.shard_task import ShardResult
from deepspark_ops.ingest.versions.kept_versions import files_of_versions, keep_version, version_digest
from deepspark_ops.ingest.versions.stored_shard import StoredShard, files_of, link_files
from deepspark_ops.run_paths import DatasetPaths, write_text_whole
from deepspark_ops.shards.hdf5_shard import write_hdf5_list
from deepspark_ops.shards.manifest import (
    MANIFEST_NAME,
    SPLITS,
    DatasetManifest,
    FileRecord,
    ShardRecord,
    SplitName,
    present_splits,
    read_manifest,
    sha256_of_file,
    write_manifest,
)
from deepspark_ops.shards.reader import verify
from deepspark_ops.shards.shard_records import read_records, records_path
from deepspark_ops.stores.store_path import StorePath
from deepspark_ops.stores.writing import local_output, remove_tree

REJECTED_NAME = "rejected.jsonl"
HDF5_LIST_NAME = "files.txt"
_NAMED_REJECTIONS = 3


def current_dataset(config: IngestConfig, recipe: Recipe) -> dict[SplitName, DatasetManifest] | None:
    """Return the manifests if the dataset in ``config.output`` is exactly what ``recipe`` would make, else None.

    Every byte is compared with the manifest, so that a rerun repairs a damaged dataset. With ``full`` it must have been
    written as a whole.
    """
    paths = DatasetPaths(config.output)
    try:
        found = {split: read_manifest(paths.split(split)) for split in present_splits(config.output)}
        if any(manifest.recipe_sha256 != recipe.sha256 for manifest in found.values()):
            return None
        if config.full and any(manifest.version > 1 for manifest in found.values()):
            return None  # its shards have rows that do not count, and a table's mean is that of its first version
        return {split: verify(paths.split(split)) for split in found}
    except DataError:
        return None


def commit_dataset(
    config: IngestConfig, recipe: Recipe, plan: IngestPlan, results: Sequence[ShardResult]
) -> dict[SplitName, DatasetManifest]:
    """Write what the manifests name, then the manifests, then remove what no manifest names any more.

    The version that the dataset goes on from stays readable below ``versions``.

    Args:
        config: What was asked for.
        recipe: Of the sources.
        plan: Whose tasks gave the results.
        results: One per task, in any order.

    Raises:
        DataError: A shard could not be written, too many records are bad, or a split has no sample. Shards written
            by this ingestion are removed; a dataset committed before stays as it was.
    """
    try:
        _check_results(config, plan, results)
        shards = {split: _all_shards(config, plan, results, split) for split in plan.splits()}
        findings = _all_findings(plan, shards)
        check_findings(config, findings)
        sums = [shard.sums() for shard in shards["train"]]
    except DataError:
        discard(plan)
        raise
    for name in (REJECTED_NAME, WARNINGS_NAME):
        (config.output / name).unlink(missing_ok=True)
    paths = DatasetPaths(config.output)
    if plan.base is not None and plan.base.folder == config.output:
        keep_version(config.output)
    n_train = sum(shard.record.n_samples for shard in shards["train"])
    with local_output(paths.mean()) as path:
        write_mean(path, mean_image(sums, n_train))
        mean_digest = sha256_of_file(path)
    values = mean_values(sums, n_train)
    previous = None if plan.base is None else version_digest(plan.base.folder)
    manifests = {}
    for split in plan.splits():
        name = paths.mean().name if split == "train" else f"../train/{paths.mean().name}"
        mean = FileRecord(file=name, sha256=mean_digest)
        rejected = [*plan.rejected.get(split, ())]
        rejected += sorted(
            (item for result in _of_split(results, split) for item in result.rejected), key=lambda item: item.position
        )
        manifest = _manifest(config, recipe, plan, shards[split], split)
        manifests[split] = manifest.model_copy(
            update={
                "mean_values": values,
                "mean_file": mean,
                "previous": previous,
                "n_rejected": len(rejected),
                "rejected_file": REJECTED_NAME if rejected else None,
                "warnings": ordered(findings[split].counts),
                "warnings_file": WARNINGS_NAME if findings[split].counts else None,
            }
        )
        _commit_split(config, manifests[split], shards[split], rejected, findings[split])
    for split in set(SPLITS) - set(manifests):
        # Of an earlier ingestion, so that it belongs to another training set.
        remove_tree(paths.split(split))
    return manifests


def _all_shards(
    config: IngestConfig, plan: IngestPlan, results: Sequence[ShardResult], split: SplitName
) -> list[StoredShard]:
    """Return the shards that stay and those that were written, in the order of their samples."""
    folder = DatasetPaths(config.output).split(split)
    tasks = {task.number: task for task in plan.tasks if task.split == split}
    shards = list(plan.changes[split].carried) if split in plan.changes else []
    for result in _of_split(results, split):
        if not result.n_samples:
            continue
        path = tasks[result.task_number].path
        record = ShardRecord(
            file=path.name,
            sha256=result.sha256,
            n_samples=result.n_samples,
            n_bytes=result.n_bytes,
            records=FileRecord(file=records_path(path).name, sha256=result.records_sha256),
            version=plan.version,
        )
        records, positions = read_records(records_path(path)), np.array(result.kept, np.int64)
        shards.append(StoredShard(record, records, positions, folder, config.shard_format))
    return shards


def discard(plan: IngestPlan) -> None:
    """Remove the shards of an ingestion that is given up."""
    for task in plan.tasks:
        remove_shard(task.path)
        remove_shard(records_path(task.path))


def check_rejections(
    config: IngestConfig, rejected: Sequence[Rejection], n_records: int, n_rejected: int | None = None
) -> None:
    """Fail if too many records cannot be used; all that are named are then listed beside the splits.

    Args:
        config: Says how many are allowed.
        rejected: Those that are named.
        n_records: All, usable or not.
        n_rejected: All that cannot be used, if not all of them are named.

    Raises:
        DataError: The share is above ``max_rejected_fraction``; the message names the first few.
    """
    allowed = int(config.max_rejected_fraction * n_records)
    n_rejected = len(rejected) if n_rejected is None else n_rejected
    if n_rejected <= allowed:
        return
    path = config.output / REJECTED_NAME
    write_rejected(path, rejected)
    named = "; ".join(f"{item.name}: {item.reason}" for item in rejected[:_NAMED_REJECTIONS])
    msg = (
        f"{n_rejected:,} of {n_records:,} records cannot be used, max_rejected_fraction="
        f"{config.max_rejected_fraction} allows {allowed:,}; first: {named}; all are in {path}"
    )
    raise DataError(msg)


def _check_results(config: IngestConfig, plan: IngestPlan, results: Sequence[ShardResult]) -> None:
    errors = [result.error for result in results if result.error is not None]
    if errors:
        more = f" (and {len(errors) - 1} more shards)" if len(errors) > 1 else ""
        raise DataError(errors[0] + more)
    rejected = [*(item for items in plan.rejected.values() for item in items)]
    rejected += sorted((item for result in results for item in result.rejected), key=lambda item: item.position)
    check_rejections(config, rejected, plan.n_records)
    for split in plan.splits():
        stays = split in plan.changes and plan.changes[split].carried
        if not stays and not any(result.n_samples for result in _of_split(results, split)):
            msg = f"no usable record is left for the {split} set; first: {rejected[0].name}: {rejected[0].reason}"
            raise DataError(msg)


def _all_findings(plan: IngestPlan, shards: Mapping[SplitName, Sequence[StoredShard]]) -> dict[SplitName, Findings]:
    """Return what was found in lists, in records, and by looking at all of them together, by split."""
    duplicates = find_duplicates(shards)
    findings = {split: Findings() for split in shards}
    for split, found in findings.items():
        found.merge(plan.findings.get(split, Findings()))
        found.merge(duplicates[split])
        for shard in shards[split]:
            found.merge(shard.findings())
    findings["train"].merge(find_thin_classes(_histogram(shards["train"], plan.n_classes), plan.class_names))
    return findings


def _histogram(shards: Sequence[StoredShard], n_classes: int) -> npt.NDArray[np.int64]:
    counts = [np.bincount(shard.labels, minlength=n_classes) for shard in shards]
    histogram: npt.NDArray[np.int64] = np.sum(counts, axis=0)
    return histogram


def check_findings(config: IngestConfig, findings: Mapping[SplitName, Findings]) -> None:
    """Fail if something was found that ``strict`` forbids; all of it is then listed beside the splits.

    Raises:
        DataError: Names what and where it is listed.
    """
    counts: Counter[str] = Counter()
    for found in findings.values():
        counts.update(found.counts)
    if not config.strict or not refused(counts):
        return
    path = config.output / WARNINGS_NAME
    write_warnings(path, [item for found in findings.values() for item in found.named])
    msg = f"strict: {summary(refused(counts))}; all are in {path}"
    raise DataError(msg)


def check_strict(config: IngestConfig, manifests: Mapping[SplitName, DatasetManifest]) -> None:
    """Refuse a dataset that is there already if its ingestion found what ``strict`` forbids.

    Raises:
        DataError: Names what and where it is listed.
    """
    for split, manifest in manifests.items():
        if config.strict and (found := refused(manifest.warnings)):
            path = DatasetPaths(config.output).split(split) / WARNINGS_NAME
            msg = f"strict: {summary(found)}; all are in {path}"
            raise DataError(msg)


def _manifest(
    config: IngestConfig, recipe: Recipe, plan: IngestPlan, shards: Sequence[StoredShard], split: SplitName
) -> DatasetManifest:
    """Return the manifest of a split without mean, findings and rejected records."""
    records = tuple(shard.record for shard in shards)
    shape = shards[0].records.sums.shape
    return DatasetManifest(
        split=split,
        splits=tuple(plan.splits()),
        shard_format=config.shard_format,
        encoded=config.encoded,
        source=recipe.source(split),
        recipe_sha256=recipe.sha256,
        options=dict(recipe.options),
        version=plan.version,
        sample_shape=(shape[0], shape[1], shape[2]),
        n_samples=sum(record.n_samples for record in records),
        n_classes=plan.n_classes,
        class_names=plan.class_names,
        label_histogram=tuple(_histogram(shards, plan.n_classes).tolist()),
        mean_values=(0.0,) * shape[0],
        mean_file=FileRecord(file=DatasetPaths(config.output).mean().name, sha256=""),
        shards=records,
        n_rejected=0,
        n_bytes=sum(record.n_bytes for record in records),
        split_rule=split_rule(config) if len(plan.splits()) > 1 else None,
        chosen=dict(plan.counts.get(split, {})),
        pixels=plan.pixels,
        group=plan.group,
    )


def _commit_split(
    config: IngestConfig,
    manifest: DatasetManifest,
    shards: Sequence[StoredShard],
    rejected: Sequence[Rejection],
    findings: Findings,
) -> None:
    folder = DatasetPaths(config.output).split(manifest.split)
    for shard in shards:
        if shard.folder != folder:
            link_files(shard.folder, files_of(shard.record), folder)
    if findings.counts:
        write_warnings(folder / WARNINGS_NAME, findings.named)
    if rejected:
        write_rejected(folder / REJECTED_NAME, rejected)
    if config.shard_format == "hdf5" and not isinstance(folder, StorePath):  # Caffe reads local files
        write_hdf5_list(folder / HDF5_LIST_NAME, [folder / shard.file for shard in manifest.shards])
    write_manifest(folder, manifest)
    remove_unlisted(folder, manifest, in_use=files_of_versions(config.output, manifest.split))


def remove_unlisted(folder: Path, manifest: DatasetManifest, *, in_use: Collection[str] = ()) -> None:
    """Remove shards and lists of a split's folder that neither its manifest names any more nor ``in_use``."""
    keep = {*in_use, MANIFEST_NAME, *(shard.file for shard in manifest.shards)}
    keep |= {beside.file for shard in manifest.shards for beside in shard.beside}
    keep |= {Path(manifest.mean_file.file).name} if manifest.split == "train" and manifest.mean_file else set()
    keep |= {manifest.source_files.file} if manifest.source_files else set()
    keep |= {REJECTED_NAME} if manifest.n_rejected else set()
    keep |= {WARNINGS_NAME} if manifest.warnings else set()
    keep |= {HDF5_LIST_NAME} if manifest.shard_format == "hdf5" else set()
    for path in folder.iterdir():
        is_ours = path.suffix in {".lmdb", ".h5", ".npz", ".tmp"} or path.name in {
            REJECTED_NAME,
            WARNINGS_NAME,
            HDF5_LIST_NAME,
        }
        if is_ours and path.name not in keep:
            remove_shard(path)


def remove_shard(path: Path) -> None:
    """Remove a shard if it is there."""
    remove_tree(path)


def _of_split(results: Sequence[ShardResult], split: SplitName) -> list[ShardResult]:
    return sorted((result for result in results if result.split == split), key=lambda result: result.task_number)


def write_rejected(path: Path, rejected: Sequence[Rejection]) -> None:
    """Write one JSON object a line."""
    write_text_whole(path, "".join(json.dumps(asdict(item), ensure_ascii=True) + "\n" for item in rejected))
