"""An ingested dataset as an object, and samples of the dataset to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from deepspark_ops.api.mistakes import mistakes_as_config_errors
from deepspark_ops.api.results.card import Card, CardTable, HasCard
from deepspark_ops.api.results.result_folder import ResultFolder
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.inspect.facts import dataset_facts
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.manifest import DatasetManifest, is_dataset, present_splits, read_manifest
from deepspark_ops.shards.reader import open_dataset
from deepspark_ops.shards.thumbnail import small_picture, to_picture
from deepspark_ops.sizes import size_text
from deepspark_ops.stores.store_path import DataPath

_SHEET_SAMPLES: Final = 16
_SHEET_PIXELS: Final = 64
_NUMBERS_SHOWN: Final = 8
_CLASSES_SHOWN: Final = 12


@dataclass(frozen=True, eq=False, repr=False)
class Samples(HasCard):
    """Some samples of a dataset.

    Attributes:
        values: (n, C, H, W) of images, BGR as Caffe stores them; (n, D) of a table's features.
        labels: (n,), or (n, L) where they are values to be predicted.
        names: Name of each sample's class; its label as text where classes have no names.
        source: Dataset and split.
        columns: Names of a table's features; empty for images.
    """

    values: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    names: tuple[str, ...]
    source: str
    columns: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.values)

    def __repr__(self) -> str:
        """Return number, shape and source; the numbers of all samples would fill pages."""
        return f"Samples({len(self)} of shape {self.values.shape[1:]} from {self.source!r})"

    @property
    def images(self) -> npt.NDArray[Any]:
        """The samples as pictures, (n, H, W, 3) RGB or (n, H, W) gray: what matplotlib and PIL take.

        Raises:
            ConfigError: They are no images.
        """
        if self.values.ndim != 4 or self.values.shape[1] not in (1, 3):
            msg = f"{self.source}: samples of shape {self.values.shape[1:]} are no pictures; values has their numbers"
            raise ConfigError(msg)
        return self.values[:, 0] if self.values.shape[1] == 1 else self.values[:, ::-1].transpose(0, 2, 3, 1)

    def _card(self) -> Card:
        return Card(f"{len(self)} samples", self.source, pictures=_pictures(self), table=_number_table(self))


class Dataset(ResultFolder):
    """An ingested dataset: a folder per split with shards and a manifest."""

    kind: ClassVar[str] = "dataset (dataset.json)"
    written_by: ClassVar[str] = "ds.ingest or deepspark ingest"

    @classmethod
    def is_at(cls, path: DataPath) -> bool:
        """Return whether a folder is a dataset."""
        return is_dataset(path)

    @property
    def splits(self) -> Mapping[str, DatasetManifest]:
        """Split -> its manifest: ``dataset.splits["train"].n_samples``.

        Raises:
            ConfigError: A manifest is damaged.
        """
        with mistakes_as_config_errors():
            names = present_splits(self.folder)
            return {name: read_manifest(DatasetPaths(self.folder).split(name)) for name in names}

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes in label order; empty without known names."""
        return self.splits["train"].class_names

    @property
    def facts(self) -> Mapping[str, Any]:
        """All facts about the dataset, the output of ``deepspark data show --json``.

        Raises:
            ConfigError: A manifest is damaged.
        """
        with mistakes_as_config_errors():
            return dataset_facts(self.folder)

    def sample(self, n: int = _SHEET_SAMPLES, *, split: str = "train", seed: int = 0) -> Samples:
        """Return ``n`` samples drawn at random, without repetition; equal seeds draw equal samples.

        Raises:
            ConfigError: No such split, ``n`` below 1, or a damaged shard.
        """
        if n < 1:
            msg = f"n={n!r}: allowed: a whole number from 1 on"
            raise ConfigError(msg)
        splits = self.splits
        if split not in splits:
            msg = f"split={split!r}: {self.folder} has {', '.join(splits)}"
            raise ConfigError(msg)
        manifest = splits[split]
        total = manifest.n_samples
        chosen = np.random.default_rng(seed).choice(total, size=min(n, total), replace=False)
        with mistakes_as_config_errors():
            values, labels = self._read(split, np.sort(chosen))
        names = tuple(_name(manifest, label) for label in labels)
        columns = () if manifest.table is None else tuple(manifest.table.feature_names())
        return Samples(values, labels, names, f"{self.folder} ({split})", columns)

    def _read(self, split: str, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return samples by numbers in the split, ascending."""
        columns: list[tuple[npt.NDArray[Any], ...]] = []
        with open_dataset(DatasetPaths(self.folder).split(split)) as dataset:
            starts = np.cumsum([0, *(shard.n_samples for shard in dataset.shards)])
            for row in rows:
                shard = int(np.searchsorted(starts, row, side="right")) - 1
                columns.append(dataset.read(shard, int(row - starts[shard]), 1))
        values, labels = ([column[at] for column in columns] for at in (0, 1))
        return np.concatenate(values), np.concatenate(labels)

    def _card(self) -> Card:
        splits = self.splits
        train = splits["train"]
        names = train.class_names or tuple(str(label) for label in range(train.n_classes))
        more = f" and {len(names) - _CLASSES_SHOWN} more" if len(names) > _CLASSES_SHOWN else ""
        samples = self.sample()
        return Card(
            "Dataset",
            str(self.folder),
            note=f"version {train.version}",
            rows={
                "samples": ", ".join(f"{name} {manifest.n_samples:,}" for name, manifest in splits.items()),
                "shape": " x ".join(str(extent) for extent in train.sample_shape),
                "classes": f"{len(names)}: {', '.join(names[:_CLASSES_SHOWN])}{more}" if names else None,
                "source": f"{train.source.path} ({train.source.format})",
                "shards": f"{len(train.shards):,} {train.shard_format}, {size_text(train.n_bytes)} in train",
            },
            pictures=_pictures(samples),
            table=_number_table(samples),
            warnings=[f"{count:,} {kind.replace('_', ' ')}" for kind, count in train.warnings.items()],
        )


def _name(manifest: DatasetManifest, label: Any) -> str:
    is_class = manifest.n_classes and np.ndim(label) == 0
    if is_class and manifest.class_names:
        return manifest.class_names[int(label)]
    return str(int(label)) if is_class else " ".join(f"{value:.4g}" for value in np.ravel(label))


def _pictures(samples: Samples) -> list[tuple[str, str]]:
    if samples.values.ndim != 4:
        return []
    pictures = [to_picture(values) for values in samples.values]
    return [
        (name, small_picture(picture, _SHEET_PIXELS).data_uri())
        for name, picture in zip(samples.names, pictures, strict=True)
        if picture is not None
    ]


def _number_table(samples: Samples) -> CardTable | None:
    """Return the first numbers of samples without images."""
    if samples.values.ndim != 2:
        return None
    shown = samples.values[:, :_NUMBERS_SHOWN]
    more = ["..."] if samples.values.shape[1] > _NUMBERS_SHOWN else []
    rows = [
        [name, *(f"{value:.4g}" for value in numbers), *more]
        for name, numbers in zip(samples.names, shown, strict=True)
    ]
    columns = samples.columns or [f"feature {at}" for at in range(shown.shape[1])]
    return CardTable(["label", *columns[:_NUMBERS_SHOWN], *more], rows)
