"""Models in production: versions on disk, one pointer, and the rule that only a better model moves it.

    <models>/<name>/versions/<version>/    a copy of a bundle; written once, never changed
    <models>/<name>/production.json        which version is in production, since when, why, and what came before

The pointer is replaced by one rename: a reader sees the old version or the new one. Two promotions at the same time
both leave valid versions; the later pointer stays.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.sample_scores import SAMPLES_NAME, read_samples
from deepspark_ops.export.manifest import MANIFEST_NAME, WEIGHTS_NAME, file_digest, read_manifest
from deepspark_ops.registry.gate import Decision
from deepspark_ops.run_paths import sync_folder, write_text_whole

PRODUCTION_VERSION: Final = 1
_VERSION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class Production(BaseModel):
    """The pointer file.

    Attributes:
        format_version: Version of this form.
        model: The model's name.
        version: Folder below ``versions``.
        promoted: UTC, ISO 8601, whole seconds.
        manifest_digest: SHA-256 of the version's manifest, ``sha256:<hex>``.
        previous: The version that was in production before; None for the first.
        decision: Why this version is here.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1]
    model: str
    version: str
    promoted: str
    manifest_digest: str
    previous: str | None
    decision: Decision


def production_file(models: Path, model: str) -> Path:
    """Return the path of the model's pointer."""
    return models / model / "production.json"


def version_folder(models: Path, model: str, version: str) -> Path:
    """Return the folder of one version."""
    return models / model / "versions" / version


def read_production(models: Path, model: str) -> Production | None:
    """Return what is in production, or None if nothing ever was.

    Raises:
        DataError: The pointer is damaged or names a version that is not there.
    """
    path = production_file(models, model)
    try:
        production = Production.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "file"
        msg = f"{path}: {place}: {first['msg']}; remove the file to start without a model in production"
        raise DataError(msg) from error
    weights = version_folder(models, model, production.version) / WEIGHTS_NAME
    if not weights.is_file():
        msg = f'{path} names version "{production.version}", but {weights} is missing; restore it or remove the file'
        raise DataError(msg)
    return production


def production_weights(models: Path, model: str) -> Path | None:
    """Return the .caffemodel in production, to start a retraining from; None if nothing is in production."""
    production = read_production(models, model)
    return version_folder(models, model, production.version) / WEIGHTS_NAME if production else None


def promote(bundle: Path, version: str, decision: Decision, config: PromoteConfig) -> Production:
    """Copy a bundle into the versions and point production at it.

    Repeating it with the same bundle changes nothing.

    Args:
        bundle: A complete bundle.
        version: Its name among the versions, usually the run's id.
        decision: The decision to record; must promote.
        config: Where, and the model's name.

    Raises:
        ConfigError: The version's name is not a plain file name, or the decision does not promote.
        DataError: The bundle is incomplete, or the version exists with other content.
    """
    if not decision.promotes:
        msg = f"decision says: {decision.reason}; only a better model goes into production"
        raise ConfigError(msg)
    if not _VERSION_NAME.fullmatch(version):
        allowed = "letters, digits, dot, dash and underscore, at most 200, the first a letter or digit"
        msg = f"version={version!r}: allowed: {allowed}"
        raise ConfigError(msg)
    read_manifest(bundle)
    digest = file_digest(bundle / MANIFEST_NAME)
    before = read_production(config.models, config.model)
    _copy_version(bundle, version_folder(config.models, config.model, version), digest)
    if before is not None and before.version == version:
        return before
    production = Production(
        format_version=PRODUCTION_VERSION,
        model=config.model,
        version=version,
        promoted=datetime.now(UTC).isoformat(timespec="seconds"),
        manifest_digest=digest,
        previous=before.version if before else None,
        decision=decision,
    )
    write_text_whole(production_file(config.models, config.model), production.model_dump_json(indent=1) + "\n")
    return production


def _copy_version(bundle: Path, folder: Path, digest: str) -> None:
    if folder.exists():
        found = file_digest(folder / MANIFEST_NAME)
        if found != digest:
            remedy = "a version never changes, choose a new name"
            msg = f"{folder} holds another bundle ({found}, this one is {digest}); {remedy}"
            raise DataError(msg)
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        shutil.copytree(bundle, temporary, dirs_exist_ok=True)
        temporary.chmod(0o755)
        temporary.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def bundle_labels(bundle: Path) -> tuple[str, ...]:
    """Return a bundle's class names as an evaluation names them: a class without a name by its number.

    Raises:
        DataError: The bundle is incomplete.
    """
    output = read_manifest(bundle).output
    return output.labels or tuple(str(label) for label in range(output.n_classes))


def bundle_samples(bundle: Path) -> npt.NDArray[np.uint64] | None:
    """Return the content hashes of the samples that a bundle was scored on; None if it does not hold them.

    Raises:
        DataError: The file is damaged.
    """
    path = bundle / SAMPLES_NAME
    return read_samples(path).content if path.is_file() else None
