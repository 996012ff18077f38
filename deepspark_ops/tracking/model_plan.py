"""Plan of a model in MLflow: the same versions with the same numbers, and the version in production.

MLflow numbers a model's versions itself: 1, 2, ... The databases never reuse a number, even after a version is deleted.
Our versions are v1, v2, ... without a gap, and the records are permanent. So the numbers are equal as long as every
version is registered, in order, and nobody else registers versions; both are checked before each registration.
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
from deepspark_ops.tracking.transfer import read_transfer

ALIAS: Final = "production"
DIGEST_TAG: Final = "deepspark.manifest_digest"
REGISTERED_TAG: Final = "deepspark.versions"
"""Tag of the registered model: the highest registered number, which MLflow forgets when the version is deleted."""


class NumbersDiffer(DeepSparkError):
    """MLflow's versions differ from this model's versions: nothing was registered."""


@dataclass(frozen=True)
class ModelVersion:
    """A version to register.

    Attributes:
        number: 7 for v7.
        description: Description in one line.
        tags: Digests, folders, figures.
        run: Id and MLflow id of the version's run, from the run's folder; None if unknown.
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
        name: Name of the model, here and in MLflow.
        versions: All versions, ascending.
        production: Number of the version in production; None without such a version.
    """

    name: str
    versions: tuple[ModelVersion, ...]
    production: int | None


@dataclass(frozen=True)
class Registered:
    """MLflow's state of a model.

    Attributes:
        highest: Highest number that DeepSpark registered (``REGISTERED_TAG``); None without the tag.
        digests: Number of each existing version -> digest in its tag; empty without the tag.
        production: Number of the alias' version; None without alias.
    """

    highest: int | None
    digests: Mapping[int, str]
    production: int | None


def plan_model(folder: ModelFolder) -> ModelPlan:
    """Return the plan of a model in MLflow.

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
    """Return the versions to register, in order, so MLflow gives each version our number.

    Raises:
        NumbersDiffer: Numbers would differ: MLflow has versions under this name from another model.
    """
    our_digests = {version.number: version.digest for version in plan.versions}
    for number, digest in sorted(registered.digests.items()):
        if digest != our_digests.get(number):
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
    assert number is not None  # record files match v*.json, and adopted bundles have numbers
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
    run = None if record.run_dir is None else _tracked_run(Path(record.run_dir))
    return ModelVersion(number, f"{record.version}: run {record.origin.run}{scores}", tags, run)


def _tracked_run(run_dir: Path) -> tuple[str, str] | None:
    if not RunPaths(run_dir).mlflow.is_file():
        return None
    tracked = read_transfer(run_dir)
    return None if tracked.run_id is None else (tracked.id, tracked.run_id)
