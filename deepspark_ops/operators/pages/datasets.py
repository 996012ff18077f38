"""The page "Datasets": what the ingested datasets hold, class by class, and which runs used them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import zip_longest
from typing import Any, Final

from deepspark_ops.errors import DataError
from deepspark_ops.export.manifest import file_digest
from deepspark_ops.operators.pages.addresses import URL_PREFIX
from deepspark_ops.operators.pages.runs import RunsPage, with_address
from deepspark_ops.operators.pages.templates import template
from deepspark_ops.operators.run_plan import Places
from deepspark_ops.run_index.listing import RunQuery
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.manifest import read_manifest

ANSWER_VERSION: Final = 1
CLASSES_SHOWN: Final = 100
SPLITS: Final = ("train", "test")


class DatasetsPage:
    """The list of datasets. A dataset is shown to whoever may read a run that used it."""

    def __init__(self, places: Places, runs: RunsPage) -> None:
        """Look for datasets in ``places`` that the runs of ``runs`` name."""
        self._datasets = places.home / "datasets"
        self._runs = runs

    def answer(self, readable: Collection[str]) -> dict[str, Any]:
        """Return the datasets of runs of DAGs that a person may read."""
        used: dict[str, list[dict[str, Any]]] = {}
        for row in self._runs.answer(readable, RunQuery())["runs"]:
            if row["dataset"]:
                used.setdefault(row["dataset"], []).append({key: row[key] for key in ("dag", "run", "state", "net")})
        there = sorted(path.name for path in self._datasets.iterdir()) if self._datasets.is_dir() else []
        datasets = [self._dataset(name, used[name]) for name in there if name in used]
        return {"format_version": ANSWER_VERSION, "datasets": datasets}

    def page(self, answer: Mapping[str, Any], *, nonce: str, site: str = "") -> str:
        """Return the list as a page.

        Args:
            answer: Of this list.
            nonce: Of the page's scripts and styles.
            site: Path that Airflow is served under, without a slash at its end.
        """
        return template("datasets.html.jinja").render(
            title="Datasets",
            datasets=[
                {**one, "runs": [with_address(run, site) for run in one["runs"]], "classes": _classes(one["splits"])}
                for one in answer["datasets"]
            ],
            n_shown=CLASSES_SHOWN,
            nonce=nonce,
            site=f"{site}{URL_PREFIX}",
            here="datasets",
        )

    def _dataset(self, name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
        paths = DatasetPaths(self._datasets / name)
        splits: dict[str, Any] = {}
        error = None
        for split in SPLITS:
            try:
                manifest = read_manifest(paths.split(split))
                digest = file_digest(paths.manifest(split))
            except (DataError, OSError) as problem:
                error = str(problem)
                continue
            names = ("n_samples", "n_classes", "n_bytes", "n_rejected", "sample_shape", "shard_format", "class_names")
            fields = manifest.model_dump(mode="json", include={*names, "label_histogram"})
            splits[split] = {**fields, "digest": digest, "source": manifest.source.path}
        return {"name": name, "splits": splits, "error": error, "runs": runs}


def _classes(splits: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row per class: its name, and its samples in each split; None where there is no such split."""
    names = next((split["class_names"] for split in splits.values() if split["class_names"]), ())
    counts = [splits[split]["label_histogram"] if split in splits else () for split in SPLITS]
    return [
        {"name": names[label] if label < len(names) else str(label), "counts": list(row)}
        for label, row in enumerate(zip_longest(*counts))
    ]
