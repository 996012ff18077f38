"""Input and output of a stage: sources, datasets, models and figures. Needs neither Airflow nor OpenLineage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from deepspark_ops.config.ingest import is_catalog_table
from deepspark_ops.evaluate.metrics import read_metrics
from deepspark_ops.evaluate.tasks.metrics_head import MetricsReport
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.run_paths import DatasetPaths, RunPaths
from deepspark_ops.shards.manifest import DatasetManifest, is_dataset, present_splits, read_manifest, split_digests
from deepspark_ops.stores.store_path import data_path

SOURCES: Final = ("source", "test_source", "validation_source")


@dataclass(frozen=True)
class LineageDataset:
    """An input or output of a stage: a file, a folder or a table.

    Attributes:
        namespace: Kind and place of the store, as OpenLineage names it: ``file``, ``s3://bucket``.
        name: Path in it.
        digest: Of its content; empty if it is not known.
        columns: Name and type of each column; empty if it has none.
        n_rows: Samples; None if they are not counted.
        n_bytes: Likewise.
        figures: What a model scored on it, by name.
    """

    namespace: str
    name: str
    digest: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    n_rows: int | None = None
    n_bytes: int | None = None
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def address(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


@dataclass(frozen=True)
class StageLineage:
    """Input and output of a stage."""

    inputs: tuple[LineageDataset, ...] = ()
    outputs: tuple[LineageDataset, ...] = ()


@dataclass(frozen=True)
class StageFacts:
    """Arguments and output of a stage.

    Attributes:
        values: Arguments of its task.
        output: Output of its task; before its end, that of the task whose run it goes on with.
        root: Folder that relative paths start from.
    """

    values: Mapping[str, Any]
    output: Mapping[str, Any]
    root: Path

    def path(self, entry: str) -> Path | None:
        """Return the path of an entry of the output."""
        value = self.output.get(entry)
        return Path(str(value)) if value else None


def before_stage(stage: str, facts: StageFacts) -> StageLineage:
    """Return the input of a stage before the start."""
    return StageLineage(inputs=tuple(_INPUTS.get(stage, _nothing)(facts)))


def after_stage(stage: str, facts: StageFacts) -> StageLineage:
    """Return input and output of a finished stage."""
    return StageLineage(
        tuple(_INPUTS.get(stage, _nothing)(facts)),
        tuple(_OUTPUTS.get(stage, _nothing)(facts)),
    )


def named_dataset(address: str, root: Path) -> LineageDataset:
    """Return the dataset at an address.

    Example:
        >>> named_dataset("s3://bucket/pets/train.txt", Path("/data"))
        LineageDataset(namespace='s3://bucket', name='pets/train.txt', digest='', columns=(), n_rows=None, ...)
        >>> named_dataset("list.txt", Path("/data")).name
        '/data/list.txt'
        >>> named_dataset("table:pets.photos", Path("/data")).namespace
        'spark'
    """
    if is_catalog_table(address):
        return LineageDataset("spark", address.partition(":")[2])
    scheme, mark, address_path = address.partition("://")
    if not mark:
        return LineageDataset("file", str(root / address))
    authority, _, path = address_path.partition("/")
    return LineageDataset(f"{scheme}://{authority}", path or "/")


def _nothing(facts: StageFacts) -> Iterator[LineageDataset]:
    del facts
    yield from ()


def _sources(facts: StageFacts) -> Iterator[LineageDataset]:
    for name in SOURCES:
        if address := facts.values.get(name):
            yield named_dataset(str(address), facts.root)


def _splits(facts: StageFacts) -> Iterator[LineageDataset]:
    """Yield each split of the run's dataset; each source of data without an ingestion is a net's own and not known."""
    address = facts.output.get("dataset")
    folder = data_path(str(address)) if address else None
    if folder is None or not is_dataset(folder):
        return
    digests = split_digests(folder)
    for split in present_splits(folder):
        manifest = read_manifest(DatasetPaths(folder).split(split))
        yield replace(
            named_dataset(str(folder / split), facts.root),
            digest=digests[split],
            columns=_columns(manifest),
            n_rows=manifest.n_samples,
            n_bytes=manifest.n_bytes,
        )


def _columns(manifest: DatasetManifest) -> tuple[tuple[str, str], ...]:
    label = "int" if manifest.n_classes else "float"
    if manifest.table is None:
        extents = ", ".join(map(str, manifest.sample_shape))
        return ("data", f"uint8[{extents}]"), ("label", label)
    features = [
        (column.name, "float" if column.width == 1 else f"float[{column.width}]") for column in manifest.table.features
    ]
    return (*features, *((name, label) for name in manifest.table.labels))


def _snapshot(facts: StageFacts) -> Iterator[LineageDataset]:
    run_dir = facts.path("run_dir")
    if run_dir is not None and (path := RunPaths(run_dir).last_weights()):
        yield LineageDataset("file", str(path), file_digest(path))


def _scored(facts: StageFacts) -> Iterator[LineageDataset]:
    """Yield the input of an evaluation; the scored split has the figures."""
    metrics_path = facts.path("metrics")
    metrics = read_metrics(metrics_path) if metrics_path is not None and metrics_path.is_file() else None
    for dataset in _splits(facts):
        if metrics is not None and dataset.address == _scored_split(metrics, facts.root).address:
            yield replace(dataset, figures={row.name: row.value for row in metrics.rows() if row.value is not None})
        else:
            yield dataset
    yield from _snapshot(facts)


def _scored_split(metrics: MetricsReport, root: Path) -> LineageDataset:
    """Return the scored split. The digest of metrics.json is a digest of samples, not of the split's manifest."""
    return named_dataset(f"{metrics.scored.dataset}/{metrics.scored.split}", root)


def _entry(entry: str) -> Callable[[StageFacts], Iterator[LineageDataset]]:
    def dataset_of_entry(facts: StageFacts) -> Iterator[LineageDataset]:
        path = facts.path(entry)
        if path is not None:
            yield LineageDataset("file", str(path), str(facts.output.get("digest") or ""))

    return dataset_of_entry


def _bundle_of_run(facts: StageFacts) -> Iterator[LineageDataset]:
    run_dir = facts.path("run_dir")
    if run_dir is not None:
        yield LineageDataset("file", str(RunPaths(run_dir).bundle))


_INPUTS: Final[Mapping[str, Callable[[StageFacts], Iterator[LineageDataset]]]] = {
    "ingest": _sources,
    "train": _splits,
    "evaluate": _scored,
    "export": _snapshot,
    "promote": _bundle_of_run,
}
_OUTPUTS: Final[Mapping[str, Callable[[StageFacts], Iterator[LineageDataset]]]] = {
    "ingest": _splits,
    "train": _snapshot,
    "evaluate": _entry("metrics"),
    "export": _entry("bundle"),
    "promote": _entry("version"),
}
