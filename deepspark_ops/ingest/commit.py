"""The end of an ingestion: are the results good enough, and if so, one rename makes all splits the dataset."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.files.mean_file import write_mean
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import DataError
from deepspark_ops.ingest.findings import (
    WARNINGS_NAME,
    Findings,
    find_thin_classes,
    ordered,
    refused,
    summary,
    write_warnings,
)
from deepspark_ops.ingest.images.mean import mean_image, mean_values
from deepspark_ops.ingest.plan import DatasetPlan
from deepspark_ops.ingest.recipe import Recipe
from deepspark_ops.ingest.records import Rejection
from deepspark_ops.ingest.selection.duplicates import find_duplicates
from deepspark_ops.ingest.selection.splits import split_rule
from deepspark_ops.ingest.shard_task import ShardResult
from deepspark_ops.ingest.versions.kept_versions import (
    keep_version,
    remove_unnamed,
    version_digest,
    write_list_for_caffe,
)
from deepspark_ops.ingest.versions.stored_shard import StoredImages, StoredShard, files_of, link_files
from deepspark_ops.run_paths import DatasetPaths, write_text_whole
from deepspark_ops.shards.files.row_records import rows_path
from deepspark_ops.shards.files.shard_records import ShardRecords, read_records, records_path
from deepspark_ops.shards.manifest import (
    DatasetManifest,
    DatasetRoot,
    FileRecord,
    ShardRecord,
    SplitName,
    present_splits,
    read_manifest,
    read_root,
    write_by_digest,
    write_manifest,
    write_root,
)
from deepspark_ops.shards.preprocessing import joint_range
from deepspark_ops.shards.verification import verify
from deepspark_ops.stores.store_path import DataPath

REJECTED_NAME = "rejected.jsonl"
_NAMED_REJECTIONS = 3


def current_dataset(config: IngestConfig, recipe: Recipe) -> dict[SplitName, DatasetManifest] | None:
    """Return the manifests if the dataset in ``config.output`` is exactly what ``recipe`` would make, else None.

    Every byte is compared with the manifest, so that a rerun repairs a damaged dataset. With ``full`` it must have been
    written as a whole.
    """
    paths = DatasetPaths(config.output)
    try:
        manifests = {split: read_manifest(paths.split(split)) for split in present_splits(config.output)}
        if any(manifest.recipe_sha256 != recipe.sha256 for manifest in manifests.values()):
            return None
        if config.full and any(manifest.version > 1 for manifest in manifests.values()):
            return None  # its shards have rows that do not count, and a table's mean is that of its first version
        return {split: verify(paths.split(split)) for split in manifests}
    except DataError:
        return None


def commit_dataset(
    config: IngestConfig, recipe: Recipe, plan: DatasetPlan[Any], results: Sequence[ShardResult]
) -> dict[SplitName, DatasetManifest]:
    """Make the dataset of what the tasks of a plan wrote; ``results`` has one for each task, in any order.

    Raises:
        DataError: A shard could not be written, too many records are bad, or a split has no sample.
        OSError: A file could not be written.
    """
    with undone_on_failure(config.output):
        splits = plan.splits()
        _check_results(config, plan, results)
        records = {split: _shard_records(plan, results, split) for split in splits}
        images = (
            None if plan.table else {split: _images(config, plan, records[split], results, split) for split in splits}
        )
        histograms = {split: _histogram(plan, results, split) for split in splits}
        findings = {split: Findings() for split in splits}
        for parts in (plan.findings, {} if images is None else _findings_of_images(images)):
            for split, findings_of_part in parts.items():
                findings[split].merge(findings_of_part)
        if plan.n_classes:
            findings["train"].merge(find_thin_classes(histograms["train"], plan.class_names))
        check_findings(config, findings)
        measured = _columns(config, plan) if images is None else _means(config, plan, images["train"])
        base = None if plan.base is None else plan.base.folder
        rule = split_rule(config, of_rows=plan.table is not None) if len(splits) > 1 else None
        manifests: dict[SplitName, DatasetManifest] = {}
        for split in splits:
            further = _rejected([result for result in results if result.split == split])
            rejected = [*plan.rejected.get(split, ()), *further]
            manifests[split] = DatasetManifest(
                split=split,
                splits=tuple(splits),
                source=recipe.source(split),
                recipe_sha256=recipe.sha256,
                options=dict(recipe.options),
                version=plan.version,
                previous=None if base is None else version_digest(base),
                sample_shape=plan.sample_shape,
                n_samples=sum(record.n_samples for record in records[split]),
                n_classes=plan.n_classes,
                class_names=plan.class_names,
                label_histogram=tuple(histograms[split].tolist()),
                shards=records[split],
                n_rejected=plan.n_rejected.get(split, 0) + len(further),
                n_bytes=sum(record.n_bytes for record in records[split]),
                split_rule=rule,
                chosen=dict(plan.counts.get(split, {})),
                group=plan.group,
                table=plan.table,
                **measured(split),
                **_write_lists(DatasetPaths(config.output).split(split), rejected, findings[split]),
            )
        _publish(config.output, manifests, base)
        return manifests


def _means(
    config: IngestConfig, plan: DatasetPlan[Any], train: Sequence[StoredShard[ShardRecords]]
) -> Callable[[SplitName], dict[str, Any]]:
    """Write the mean image, and return the fields of a split's manifest that only images have."""
    sums = [shard.sums() for shard in train]
    n_train = sum(shard.record.n_samples for shard in train)
    image = mean_image(sums, n_train)
    folder = DatasetPaths(config.output).split("train")
    mean = write_by_digest(folder, "mean.binaryproto", lambda path: write_mean(path, image))
    pixel_range = joint_range(shard.records.pixel_range for shard in train)
    fields = {
        "shard_format": config.shard_format,
        "encoded": config.encoded,
        "mean_values": mean_values(sums, n_train),
        "pixels": plan.pixels and plan.pixels.model_copy(update={"pixel_range": pixel_range}),
    }
    mean_beside_train = FileRecord(file=f"../train/{mean.file}", sha256=mean.sha256)
    return lambda split: {**fields, "mean_file": mean if split == "train" else mean_beside_train}


def _columns(config: IngestConfig, plan: DatasetPlan[Any]) -> Callable[[SplitName], dict[str, Any]]:
    """Write what there is to keep of a table's files, and return the fields of a manifest that only tables have."""
    files: FileRecord | None = None
    if plan.write_files is not None:
        files = write_by_digest(DatasetPaths(config.output).split("train"), "files.npz", plan.write_files)
    fields = {"shard_format": "hdf5", "encoded": False, "mean_values": ()}
    return lambda split: {**fields, "source_files": files if split == "train" else None}


def _publish(output: DataPath, manifests: Mapping[SplitName, DatasetManifest], base: DataPath | None) -> None:
    """Make splits the dataset in ``output``, all by one rename; the earlier version stays below ``versions``.

    Args:
        output: Folder of the dataset, with all new shards and lists.
        manifests: Manifest of each split.
        base: Dataset that the version goes on from, whose shards the manifests may name; None without.
    """
    records: dict[SplitName, FileRecord] = {}
    for split, manifest in manifests.items():
        folder = DatasetPaths(output).split(split)
        if isinstance(base, Path) and isinstance(folder, Path) and base != output:  # no store shares files
            files = [name for shard in manifest.shards for name in files_of(shard) if not (folder / name).exists()]
            link_files(base / split, files, folder)
        records[split] = write_manifest(folder, manifest)
    root = DatasetRoot(splits=records)
    with suppress(DataError):  # a damaged dataset is no version that could be kept
        if read_root(output) not in (None, root):
            keep_version(output)
    write_root(output, root)
    for name in (REJECTED_NAME, WARNINGS_NAME):  # of an ingestion that was refused
        (output / name).unlink(missing_ok=True)
    finish_commit(output, manifests)


def _write_lists(folder: DataPath, rejected: Sequence[Rejection], findings: Findings) -> dict[str, Any]:
    """Write the lists of a split's bad records and of its warnings; return the manifest's fields about the lists."""
    rejected_file = warnings_file = None
    if rejected:
        rejected_file = write_by_digest(folder, REJECTED_NAME, lambda path: write_rejected(path, rejected)).file
    if findings.counts:
        warnings_file = write_by_digest(folder, WARNINGS_NAME, lambda path: write_warnings(path, findings.named)).file
    return {
        "rejected_file": rejected_file,
        "warnings": ordered(findings.counts),
        "warnings_file": warnings_file,
    }


def finish_commit(output: DataPath, manifests: Mapping[SplitName, DatasetManifest]) -> None:
    """Bring files that follow the manifests up to them; also after a commit that was killed before it could."""
    for split, manifest in manifests.items():
        folder = DatasetPaths(output).split(split)
        write_list_for_caffe(folder, manifest, folder)
    with suppress(DataError):  # of a version that is damaged
        remove_unnamed(output)


@contextmanager
def undone_on_failure(output: DataPath) -> Iterator[None]:
    """Remove new shards when an ingestion fails, whatever the reason; files that a version names stay."""
    try:
        yield
    except BaseException:
        with suppress(DataError, OSError):
            remove_unnamed(output)
        raise


def _shard_records(plan: DatasetPlan[Any], results: Sequence[ShardResult], split: SplitName) -> tuple[ShardRecord, ...]:
    """Return the shards that stay and those that were written, in the order of their samples."""
    paths = {task.number: task.path for task in plan.tasks if task.split == split}
    written = []
    for result in _of_split(results, split):
        path = paths[result.task_number]
        name, records_file = ("records", records_path(path)) if plan.table is None else ("rows", rows_path(path))
        record = ShardRecord(
            file=path.name,
            sha256=result.sha256,
            n_samples=result.n_samples,
            n_bytes=result.n_bytes,
            version=plan.version,
        )
        file = FileRecord(file=records_file.name, sha256=result.records_sha256)
        written.append(record.model_copy(update={name: file}))
    return (*(shard.record for shard in plan.carried(split)), *written)


def _images(
    config: IngestConfig,
    plan: DatasetPlan[Any],
    records: Sequence[ShardRecord],
    results: Sequence[ShardResult],
    split: SplitName,
) -> list[StoredShard[ShardRecords]]:
    """Return the shards of ``_shard_records`` with what is known of their images."""
    folder = DatasetPaths(config.output).split(split)
    shards = list(plan.carried(split))
    for record, result in zip(records[len(shards) :], _of_split(results, split), strict=True):
        images = read_records(records_path(folder / record.file))
        shards.append(StoredShard(record, images, result.written_positions, folder, config.shard_format))
    return shards


def check_rejections(config: IngestConfig, rejected: Sequence[Rejection], n_records: int, n_rejected: int) -> None:
    """Fail if too many of all records cannot be used; those that are named are then listed beside the splits.

    Raises:
        DataError: The share is above ``max_rejected_fraction``; the message names the first few.
    """
    allowed = int(config.max_rejected_fraction * n_records)
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


def _check_results(config: IngestConfig, plan: DatasetPlan[Any], results: Sequence[ShardResult]) -> None:
    errors = [result.error for result in results if result.error is not None]
    if errors:
        more = f" (and {len(errors) - 1} more shards)" if len(errors) > 1 else ""
        raise DataError(errors[0] + more)
    further = _rejected(results)
    rejected = [*(item for items in plan.rejected.values() for item in items), *further]
    check_rejections(config, rejected, plan.n_records, sum(plan.n_rejected.values()) + len(further))
    for split in plan.splits():
        if not plan.carried(split) and not _of_split(results, split):
            msg = f"no usable record is left for the {split} set; first: {rejected[0].name}: {rejected[0].reason}"
            raise DataError(msg)


def _rejected(results: Sequence[ShardResult]) -> list[Rejection]:
    """Return the records that tasks could not use, in the order of the source."""
    return sorted((item for result in results for item in result.rejected), key=lambda item: item.position)


def _findings_of_images(images: Mapping[SplitName, Sequence[StoredShard[ShardRecords]]]) -> dict[SplitName, Findings]:
    """Return what was found in images, and by looking at all of them together, by split."""
    findings = find_duplicates({split: StoredImages(shards) for split, shards in images.items()})
    for split, shards in images.items():
        for shard in shards:
            findings[split].merge(shard.findings())
    return findings


def _histogram(plan: DatasetPlan[Any], results: Sequence[ShardResult], split: SplitName) -> npt.NDArray[np.int64]:
    """Return the labels of a split, (n_classes,), of what stays and what was written."""
    counts = [plan.carried_counts.get(split, np.zeros(plan.n_classes, np.int64))]
    counts += [result.label_counts for result in _of_split(results, split)]
    histogram: npt.NDArray[np.int64] = np.sum(counts, axis=0)
    return histogram


def check_findings(config: IngestConfig, findings: Mapping[SplitName, Findings]) -> None:
    """Fail if something was found that ``strict`` forbids; all of it is then listed beside the splits.

    Raises:
        DataError: Names what and where it is listed.
    """
    counts: Counter[str] = Counter()
    for findings_of_split in findings.values():
        counts.update(findings_of_split.counts)
    if not config.strict or not refused(counts):
        return
    path = config.output / WARNINGS_NAME
    write_warnings(path, [item for findings_of_split in findings.values() for item in findings_of_split.named])
    msg = f"strict: {summary(refused(counts))}; all are in {path}"
    raise DataError(msg)


def check_strict(config: IngestConfig, manifests: Mapping[SplitName, DatasetManifest]) -> None:
    """Refuse a dataset that is there already if its ingestion found what ``strict`` forbids.

    Raises:
        DataError: Names what and where it is listed.
    """
    for split, manifest in manifests.items():
        if config.strict and (refused_kinds := refused(manifest.warnings)):
            path = DatasetPaths(config.output).split(split) / (manifest.warnings_file or WARNINGS_NAME)
            msg = f"strict: {summary(refused_kinds)}; all are in {path}"
            raise DataError(msg)


def _of_split(results: Sequence[ShardResult], split: SplitName) -> list[ShardResult]:
    """Return the results of tasks of a split that wrote a shard, in the order of the shards."""
    wrote = (result for result in results if result.split == split and result.n_samples)
    return sorted(wrote, key=lambda result: result.task_number)


def write_rejected(path: DataPath, rejected: Sequence[Rejection]) -> None:
    """Write one JSON object a line."""
    write_text_whole(path, "".join(json.dumps(asdict(item), ensure_ascii=True) + "\n" for item in rejected))
