"""The pages about datasets: samples per class, pictures, and the runs that used a dataset."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import zip_longest
from typing import Any, Final

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.errors import DataError
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.operators.pages.addresses import URL_PREFIX, dataset_url
from deepspark_ops.operators.pages.lists.runs import RunsPage, with_address
from deepspark_ops.operators.pages.refused import Refused
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.tasks.airflow_words import airflow_words
from deepspark_ops.operators.tasks.run_plan import Places
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.class_name import class_name
from deepspark_ops.shards.files.picture_archive import PictureArchive
from deepspark_ops.shards.manifest import (
    SPLITS,
    DatasetManifest,
    is_dataset,
    manifest_path,
    present_splits,
    read_manifest,
)

ANSWER_VERSION: Final = 1
CLASSES_SHOWN: Final = 1_000
RUNS_SHOWN: Final = 100
_OF_RUN: Final = (
    "dag", "run", "name", "state", "net", "strategy", "n_workers", "accuracy", "figure", "when", "who",
    "dataset_digest",
)  # fmt: skip
_OF_MANIFEST: Final = (
    "n_samples", "n_classes", "n_bytes", "n_rejected", "sample_shape", "shard_format", "encoded", "class_names",
    "label_histogram", "mean_values",
)  # fmt: skip


class DatasetsPage:
    """The list of datasets and the page of a dataset.

    A dataset is visible with the right to read a run that used the dataset.
    """

    def __init__(self, installation: Places, runs: RunsPage) -> None:
        """Look for datasets in ``installation`` by the names from ``runs``."""
        self._datasets = installation.home / "datasets"
        self._runs = runs

    def answer(self, readable: Collection[str]) -> dict[str, Any]:
        """Return the datasets of all readable runs."""
        used = self._used(readable)
        return {"format_version": ANSWER_VERSION, "datasets": [self._dataset(name, used[name]) for name in used]}

    def dataset(self, readable: Collection[str], name: str) -> dict[str, Any]:
        """Return a dataset with samples.

        Raises:
            Refused: There is no such dataset, or the person may read no run that used it.
        """
        runs = self._used(readable).get(name)
        if runs is None:
            raise _unknown(name, "dataset")
        dataset = self._dataset(name, runs)
        has_report = DatasetPaths(self._datasets / name).report.is_file()
        fields = {**dataset, "samples": self._samples(name), "has_report": has_report}
        return {"format_version": ANSWER_VERSION, "dataset": fields}

    def report(self, readable: Collection[str], name: str) -> str:
        """Return the report of a dataset.

        Raises:
            Refused: As ``dataset``, or the dataset has no report.
        """
        path = DatasetPaths(self._datasets / name).report
        if name not in self._used(readable) or not path.is_file():
            raise _unknown(name, "report of a dataset")
        return regular_text(path)

    def page(self, answer: Mapping[str, Any], *, nonce: str, site: str = "") -> str:
        """Return the list, or the page of a dataset, see ``answers.shown``."""
        datasets = [answer["dataset"]] if "dataset" in answer else answer["datasets"]
        shown = [
            {
                **dataset,
                "runs": [with_address(run, site) for run in dataset["runs"]],
                "classes": _classes(dataset["splits"]),
                "url": f"{site}{dataset_url(dataset['name'])}",
            }
            for dataset in datasets
        ]
        values = {"nonce": nonce, "site": f"{site}{URL_PREFIX}", "here": "datasets", "runs_shown": RUNS_SHOWN}
        if "dataset" not in answer:
            return template("datasets.html.jinja").render(title="Datasets", datasets=shown, **values)
        return template("dataset.html.jinja").render(
            title=shown[0]["name"], dataset=shown[0], classes_shown=CLASSES_SHOWN, splits=SPLITS, **values
        )

    def _used(self, readable: Collection[str]) -> dict[str, list[dict[str, Any]]]:
        """Return the present datasets by name, each with its runs, newest first."""
        present_names = {path.name for path in self._datasets.iterdir()} if self._datasets.is_dir() else set()
        used: dict[str, list[dict[str, Any]]] = {}
        for row in self._runs.rows(readable):
            if row["dataset"] in present_names:
                used.setdefault(row["dataset"], []).append({key: row[key] for key in _OF_RUN})
        return dict(sorted(used.items()))

    def _dataset(self, name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
        paths = DatasetPaths(self._datasets / name)
        splits: dict[str, Any] = {}
        error: str | None = None
        written: float | None = None
        for split in present_splits(paths.root):
            try:
                manifest = read_manifest(paths.split(split))
                path = manifest_path(paths.root, split)
                splits[split] = {**_of_manifest(manifest), "digest": file_digest(path)}
                written = max(written or 0.0, path.stat().st_mtime)
            except (DataError, OSError) as problem:
                unfinished = f"{paths.root}: no ingestion has finished this dataset: task ingest runs or has failed"
                error = airflow_words(str(problem)) if is_dataset(paths.root) else unfinished
        digest = splits.get("train", {}).get("digest")
        used_by = [{**run, "is_same": digest is None or run["dataset_digest"] == digest} for run in runs]
        return {"name": name, "splits": splits, "error": error, "made": written, "runs": used_by}

    def _samples(self, name: str) -> dict[str, str]:
        """Return class -> samples side by side, as a ``data:`` address; empty without a contact sheet of this data."""
        paths = DatasetPaths(self._datasets / name)
        with suppress(DataError):
            archive = PictureArchive(paths.contact_sheet, read_manifest(paths.split("train")).recipe_sha256)
            return {str(label): picture.data_uri() for label, picture in archive.read(archive.numbers).items()}
        return {}


def _unknown(name: str, subject: str) -> Refused:
    msg = f'there is no {subject} "{name}", or no run that used it is of a DAG that you may read'
    return Refused(msg, 404)


def _of_manifest(manifest: DatasetManifest) -> dict[str, Any]:
    return {
        **manifest.model_dump(mode="json", include=set(_OF_MANIFEST)),
        "n_shards": len(manifest.shards),
        "source": manifest.source.path,
        "source_format": manifest.source.format,
        "source_digest": f"sha256:{manifest.source.sha256}",
        "split_rule": None if manifest.split_rule is None else manifest.split_rule.text(),
    }


def _classes(splits: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row per class: name, samples in each split, and the share of the split's largest class.

    A count is None for a missing split.
    """
    names = next((split["class_names"] for split in splits.values() if split["class_names"]), ())
    counts = [splits[split]["label_histogram"] if split in splits else () for split in SPLITS]
    most = [max(row, default=0) or 1 for row in counts]
    return [
        {
            "label": label,
            "name": class_name(names, label),
            "counts": list(row),
            "shares": [(count or 0) / top for count, top in zip(row, most, strict=True)],
        }
        for label, row in enumerate(zip_longest(*counts))
    ]
