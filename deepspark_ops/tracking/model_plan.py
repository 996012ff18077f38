"""What MLflow is told of a model: the same versions under the same numbers, and which is in production.

MLflow numbers a model's versions itself: 1, 2, ... and, in its databases, never a number twice, though a version was
deleted. Ours are v1, v2, ... without a gap, whose records stay for good. So the numbers are the same as long as every
version is registered, in order, and nobody else registers any; both are checked before a version is registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deepspark_ops.errors import DeepSparkError
from deepspark_ops.registry.model_folder import ModelFolder, version_number
from deepspark_ops.registry.production import read_pointer
from deepspark_ops.registry.versions import VersionRecord, read_versions
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.tracking.told import read_told

ALIAS: Final = "production"
DIGEST_TAG: Final = "deepspark.manifest_digest"
REGISTERED_TAG: Final = "deepspark.versions"
"""Tag of the registered model: the highest number registered, which MLflow itself forgets when that is deleted."""


class NumbersDiffer(DeepSparkError):
    """MLflow's versions are not this model's: nothing was registered."""


@dataclass(frozen=True)
class ModelVersion:
    """A version to register.

    Attributes:
        number: 7 for v7.
        description: One line.
        tags: Digests, places, figures.
        run: Id and MLflow id of its run, as the run's folder notes them; None where that is not known.
    """

    number: int
    description: str
    tags: Mapping[str, str]
    run: tuple[str, str] | None = None

    @property
    def digest(self) -> str:
        """Of the bundle's manifest: equal digests, equal versions."""
        return self.tags[DIGEST_TAG]


@dataclass(frozen=True)
class ModelPlan:
    """A model.

    Attributes:
        name: In MLflow too.
        versions: All, ascending.
        production: Number of the one in production; None if there is none.
    """

    name: str
    versions: tuple[ModelVersion, ...]
    production: int | None


@dataclass(frozen=True)
class Registered:
    """What MLflow has of a model.

    Attributes:
        highest: Highest number that was registered from here (``REGISTERED_TAG``); None if that was never noted.
        digests: Number -> digest that its tag has, of the versions that are there; empty for one without the tag.
        production: Number that the alias points at; None if there is none.
    """

    highest: int | None
    digests: Mapping[int, str]
    production: int | None


def plan_model(folder: ModelFolder) -> ModelPlan:
    """Return what MLflow is told of a model.

    Raises:
        DataError: A record or the pointer is damaged.
    """
    pointer = read_pointer(folder)
    versions = (_version(folder, record) for record in read_versions(folder))
    return ModelPlan(
        folder.name,
        tuple(sorted(versions, key=lambda version: version.number)),
        None if pointer is None else version_number(pointer.version),
    )


def missing_versions(plan: ModelPlan, registered: Registered) -> list[ModelVersion]:
    """Return the versions to register, in their order, so that MLflow gives each the number it has here.

    Raises:
        NumbersDiffer: It would not: some of what MLflow has under the name is not from here.
    """
    ours = {version.number: version.digest for version in plan.versions}
    for number, digest in sorted(registered.digests.items()):
        if digest != ours.get(number):
            msg = (
                f'MLflow has a version {number} of model "{plan.name}" that is not v{number} of this one, so that'
                " numbers would differ: give one of the two models another name, or use another MLflow"
            )
            raise NumbersDiffer(msg)
    highest = max([registered.highest or 0, *registered.digests])
    missing = [version for version in plan.versions if version.number > highest]
    expected = [highest + 1 + index for index in range(len(missing))]
    if (numbers := [version.number for version in missing]) != expected:
        msg = (
            f'model "{plan.name}": MLflow goes on at version {highest + 1}, but its next versions here are {numbers}:'
            f" records are missing in {plan.name}/versions; restore them"
        )
        raise NumbersDiffer(msg)
    return missing


def _version(folder: ModelFolder, record: VersionRecord) -> ModelVersion:
    number = version_number(record.version)
    assert number is not None  # records are found by v*.json, and adopted ones get a number
    figures = record.figures
    judged = None if figures is None else figures.judged_by()
    named = "" if judged is None else f", {judged.name}={judged.value:.4f}"
    scores = "" if figures is None else f"{named} loss={figures.loss:.4f} of {figures.n_samples}"
    tags = {
        DIGEST_TAG: record.manifest_digest,
        "deepspark.weights_digest": record.weights_digest,
        "deepspark.folder": str(folder.bundle(record.folder)),
        "deepspark.run": record.origin.run,
        "deepspark.created": record.created,
        "deepspark.started_from": record.started_from or "",
    }
    run = None if record.run_dir is None else _told_run(Path(record.run_dir))
    return ModelVersion(number, f"{record.version}: run {record.origin.run}{scores}", tags, run)


def _told_run(run_dir: Path) -> tuple[str, str] | None:
    if not RunPaths(run_dir).mlflow.is_file():
        return None
    told = read_told(run_dir)
    return None if told.run_id is None else (told.id, told.run_id)
