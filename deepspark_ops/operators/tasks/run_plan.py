"""Folders of a run's files and the config of each stage: the part of the operators without Airflow."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.config.base import WHERE_IT_RUNS, parse_config
from deepspark_ops.config.ingest import ARCHIVE_MARK, IngestConfig, is_catalog_table
from deepspark_ops.config.places import PlacesConfig
from deepspark_ops.config.shared_options.named_files import ListedFiles, NamedFiles
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.files.archive import split_member
from deepspark_ops.ingest.sources.registry import path_stamps, source_stamps
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.shards.manifest import is_dataset, present_splits, split_manifest_path
from deepspark_ops.stores.store_path import DataPath, data_path

_AIRFLOW_RUN_ID = re.compile(r"[a-z_]+__\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+\d\d:\d\d|Z)?(_\w+)?")
_AIRFLOW_RUN_FOLDER = re.compile(_AIRFLOW_RUN_ID.pattern.replace(":", "-").replace("\\+", "_"))
"""The folder names of those run ids."""
HAS_DIGEST = re.compile(r"-[0-9a-f]{8}$")
"""The end of a folder name whose run id has other characters."""
_DIGEST_LENGTH = 12
DEFAULT_MODELS = "models"
DECIDED_VERSION = 1
"""Of the form of ``RunPaths.decided``."""


@dataclass(frozen=True)
class Places:
    """Folders of an installation.

    Attributes:
        root: Relative paths in a run's parameters are relative to it.
        home: Holds ``runs/``, ``datasets/`` and ``models/``.
        allowed_roots: Folders whose files a net, a solver and their lists may name, besides the solver's own, that of
            the data (``<root>/data``, ``<home>/data``) and the datasets. Pages show runs in them.
        python_layers: Modules that a net's Python layers may name; no other is imported.
        models_folder: Folder of models in production, if it is not ``models/`` in ``home``.
    """

    root: Path
    home: Path
    allowed_roots: tuple[Path, ...] = ()
    python_layers: tuple[str, ...] = ()
    models_folder: Path | None = None

    @property
    def models(self) -> Path:
        """Folder of models in production."""
        return self.models_folder or self.home / DEFAULT_MODELS

    def with_config(self, config: PlacesConfig) -> Places:
        """Return the places with a connection's values above the environment's."""
        roots = self.allowed_roots if config.allowed_roots is None else config.allowed_roots
        return replace(self, home=config.home or self.home, models_folder=config.models, allowed_roots=roots)

    @classmethod
    def of_dags_folder(cls, dags: Path, environment: Mapping[str, str]) -> Places:
        """Return the places of an Airflow.

        Args:
            dags: Its DAGs folder; the folder above it is the root, unless ``DEEPSPARK_ROOT`` names one.
            environment: ``DEEPSPARK_HOME`` moves what runs write, ``DEEPSPARK_ALLOWED_ROOTS`` (colons between them) and
                ``DEEPSPARK_PYTHON_LAYERS`` (commas between them) are the last two attributes.
        """
        root = Path(environment.get("DEEPSPARK_ROOT") or dags.parent).resolve()
        return cls(
            root,
            Path(environment.get("DEEPSPARK_HOME") or root).resolve(),
            tuple(root / part for part in environment.get("DEEPSPARK_ALLOWED_ROOTS", "").split(os.pathsep) if part),
            tuple(filter(None, (part.strip() for part in environment.get("DEEPSPARK_PYTHON_LAYERS", "").split(",")))),
        )

    def named_files(self) -> NamedFiles:
        """Return the allowed files of nets and solvers in Airflow, for forms of persons other than the task's user.

        Raises:
            ConfigError: A module's name is none.
        """
        return parse_config(NamedFiles, {**self._confined(), "python_layers": self.python_layers})

    def listed_files(self) -> ListedFiles:
        """Return the allowed files of raw data's lists in Airflow, beside the files of the lists' folders."""
        return parse_config(ListedFiles, self._confined())

    def _confined(self) -> dict[str, object]:
        folders = (self.root / "data", self.home / "data", self.home / "datasets", *self.allowed_roots)
        return {"allowed_root": folders, "confined": True}

    def place_of(self, source: object) -> str:
        """Return the single name of a source: relative and absolute paths are the same, links are followed."""
        if is_catalog_table(source):
            return str(source)
        path, mark, member = str(source or "").partition(ARCHIVE_MARK)
        return f"{(self.root / data_path(path)).resolve()}{mark}{member}"

    def run_folder(self, dag_id: str, run_id: str) -> Path:
        """Return ``<home>/runs/<dag_id>/<safe run id>``."""
        return self.home / "runs" / dag_id / safe_run_id(run_id)

    def may_show(self, run_dir: Path) -> bool:
        """Return whether pages may show a run in a folder without links: below ``<home>/runs`` or an allowed root."""
        runs = (self.home / "runs").resolve()
        is_run = run_dir.is_relative_to(runs) and run_dir != runs and run_dir.parent != runs
        return is_run or any(run_dir.is_relative_to((self.root / root).resolve()) for root in self.allowed_roots)

    def dataset_folder(self, config: IngestConfig) -> Path:
        """Return the folder of the dataset of ``config``: another folder after a change of config or source.

        All paths of a source, relative, absolute or by a link, have the same dataset.
        """
        named = {name: getattr(config, name) for name in ("source", "test_source", "validation_source")}
        config = config.model_copy(
            update={name: data_path(self.place_of(path)) for name, path in named.items() if path is not None}
        )
        name = str(config.source).partition(ARCHIVE_MARK)[0].rpartition("/")[2]
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name.split(".")[0]) or "dataset"
        return self.home / "datasets" / f"{stem}-{ingest_digest(config)}"


@lru_cache(maxsize=1 << 16)
def safe_run_id(run_id: str) -> str:
    """Return a folder name for a run id; two run ids never share a folder.

    Hadoop's paths cannot hold a colon and a URL reads ``+`` as a space, so both go.

    Example:
        >>> safe_run_id("manual__2026-01-31T04:05:06.789+00:00")
        'manual__2026-01-31T04-05-06.789_00-00'
        >>> safe_run_id("my run/1")
        'my-run-1-7e011789'
    """
    if _AIRFLOW_RUN_ID.fullmatch(run_id):
        return run_id.replace(":", "-").replace("+", "_")
    if is_folder_name(run_id) and not _AIRFLOW_RUN_FOLDER.fullmatch(run_id) and not HAS_DIGEST.search(run_id):
        return run_id
    return f"{_folder_text(run_id)}-{hashlib.sha256(run_id.encode()).hexdigest()[:8]}"


@lru_cache(maxsize=1 << 16)
def folder_prefixes(run_id: str) -> tuple[str, ...]:
    """Return the beginnings of the folders' names of a DAG run's runs, ``<run id>__<task>``.

    Example:
        >>> folder_prefixes("manual__2026-01-31T04:05:06+00:00")
        ('manual__2026-01-31T04-05-06_00-00__', 'manual__2026-01-31T04-05-06-00-00__')
    """
    return tuple(f"{text}__" for text in dict.fromkeys((safe_run_id(run_id), _folder_text(run_id))))


def is_folder_name(name: str) -> bool:
    """Return whether a name can be the folder of a run."""
    return bool(name) and name == _folder_text(name)


def _folder_text(run_id: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", run_id).strip(".-")[:120]


def ingest_digest(config: IngestConfig) -> str:
    """Return a digest of what decides a dataset's content: the config, and the stamp of each file that it reads.

    Raises:
        ConfigError: A store does not answer.
    """
    fields = config.model_dump(mode="json", exclude={"output", "previous", "full", "listed_files", *WHERE_IT_RUNS})
    sources = [config.source, config.test_source, config.validation_source]
    files = [config.split_list, config.labels, config.class_names]
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode())
    stamps = itertools.chain(
        *(source_stamps(config, source) for source in sources if source is not None),
        *(path_stamps(split_member(path)[0], config.stamp) for path in files if path is not None),
    )
    try:
        for stamp in stamps:
            digest.update(stamp)
    except OSError as error:
        msg = f"{error.filename or config.source}: {error.strerror or error}"
        raise ConfigError(msg) from error
    return digest.hexdigest()[:_DIGEST_LENGTH]


@dataclass(frozen=True)
class Decided:
    """Decisions of task check for a run, for the pages.

    Attributes:
        production: Weights in production when the run began; None where there were none, or the DAG does not use them.
        model: Name of the model that the run is for; None for none.
        started: What started the run, in words; empty if it is not known.
        dataset: The dataset to ingest and train on; None where the run trains on the net's own sources.
    """

    production: Path | None = None
    model: str | None = None
    started: str = ""
    dataset: DataPath | None = None


def read_decided(run_dir: Path) -> Decided:
    """Return the decisions of task check of a run; nothing before the decisions, or from a file of another version."""
    try:
        fields = json.loads(regular_text(RunPaths(run_dir).decided))
        if fields["format_version"] != DECIDED_VERSION:
            return Decided()
        dataset = data_path(fields["dataset"]) if fields["dataset"] else None
        production = Path(fields["production"]) if fields["production"] else None
        return Decided(production, fields["model"], str(fields.get("started", "")), dataset)
    except (OSError, ValueError, TypeError, KeyError):
        return Decided()


def is_ingested(dataset: DataPath) -> bool:
    """Return whether all splits of a dataset are committed; the files may still be damaged."""
    return is_dataset(dataset) and all(
        split_manifest_path(dataset / split).is_file() for split in present_splits(dataset)
    )
