"""The figures of a dataset from its manifests."""

from __future__ import annotations

from typing import Any, Final

from deepspark_ops.errors import DataError
from deepspark_ops.ingest.versions.kept_versions import kept_versions, version_digest
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.manifest import DatasetManifest, SplitName, present_splits, read_manifest, split_digests
from deepspark_ops.stores.store_path import DataPath

FACTS_VERSION: Final = 1


def read_splits(dataset: DataPath) -> dict[SplitName, DatasetManifest]:
    """Return the manifests of a dataset's splits, train first.

    Raises:
        DataError: There is no dataset, or a manifest is damaged.
    """
    if not dataset.is_dir():
        msg = f"{dataset}: no such dataset folder; give the OUTPUT of an ingestion"
        raise DataError(msg)
    return {split: read_manifest(DatasetPaths(dataset).split(split)) for split in present_splits(dataset)}


def dataset_facts(dataset: DataPath) -> dict[str, Any]:
    """Return what a dataset holds, as JSON values.

    Raises:
        DataError: There is no dataset, or a manifest is damaged.
    """
    manifests = read_splits(dataset)
    train = manifests["train"]
    return {
        "format_version": FACTS_VERSION,
        "dataset": str(dataset),
        "digest": version_digest(dataset),
        "version": train.version,
        "previous": train.previous,
        "recipe": f"sha256:{train.recipe_sha256}",
        "options": train.options and {**train.options, "shard_format": train.shard_format},  # a table's is always hdf5
        "class_names": list(train.class_names),
        "splits": {split: _split_facts(dataset, manifest) for split, manifest in manifests.items()},
        "versions": [_version_facts(path) for path in kept_versions(dataset)],
    }


def _split_facts(dataset: DataPath, manifest: DatasetManifest) -> dict[str, Any]:
    return {
        "digest": split_digests(dataset)[manifest.split],
        "source": manifest.source.model_dump(),
        "split_rule": None if manifest.split_rule is None else manifest.split_rule.text(),
        "n_samples": manifest.n_samples,
        "n_classes": manifest.n_classes,
        "label_histogram": list(manifest.label_histogram),
        "sample_shape": list(manifest.sample_shape),
        "shard_format": manifest.shard_format,
        "encoded": manifest.encoded,
        "n_bytes": manifest.n_bytes,
        "n_excluded": sum(shard.n_rows - shard.n_samples for shard in manifest.shards),
        "n_rejected": manifest.n_rejected,
        "mean_values": list(manifest.mean_values),
        "warnings": manifest.warnings,
        "chosen": manifest.chosen,
        "shards": [
            {
                "file": shard.file,
                "n_samples": shard.n_samples,
                "n_bytes": shard.n_bytes,
                "sha256": shard.sha256,
                "n_excluded": shard.n_rows - shard.n_samples,
                "version": shard.version,
            }
            for shard in manifest.shards
        ],
    }


def _version_facts(path: DataPath) -> dict[str, Any]:
    manifests = read_splits(path)
    return {
        "path": str(path),
        "digest": version_digest(path),
        "version": manifests["train"].version,
        "n_samples": {split: manifest.n_samples for split, manifest in manifests.items()},
    }
