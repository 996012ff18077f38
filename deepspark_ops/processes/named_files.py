"""Limits on the files and modules in a net or a solver."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from caffe_import.file_access.allowed_roots import AllowedRoots, use_allowed_roots
from caffe_import.net.python_layers import allow_python_modules
from deepspark_ops.config.shared_options.named_files import ListedFiles, NamedFiles
from deepspark_ops.stores.store_path import DataPath, StorePath

_REMEDY = "move it there, or allow its folder: --allowed-root, in Airflow DEEPSPARK_ALLOWED_ROOTS"


def limit_named_files(
    config: NamedFiles,
    trusted: Iterable[DataPath | None],
    *,
    scratch: Path | None = None,
    warn: Callable[[str], None] | None = None,
) -> None:
    """Apply the config's limits on the files and modules in nets and solvers, until the next call.

    Args:
        config: The options.
        trusted: Folders of the solver, the dataset and the run. None and stores are skipped.
        scratch: Temporary folder of this process, which no message names.
        warn: Called for each other folder that is read although no limit allows it; default: the log.
    """
    use_allowed_roots(allowed_roots(config, trusted, scratch=scratch, warn=warn))
    allow_python_modules(None if config.allow_python_layers else config.python_layers)


def allowed_roots(
    config: ListedFiles,
    trusted: Iterable[DataPath | None],
    *,
    scratch: Path | None = None,
    warn: Callable[[str], None] | None = None,
) -> AllowedRoots:
    """Return the roots for ``limit_named_files``; the working directory is a root unless ``confined`` is set."""
    folders = [folder for folder in trusted if folder is not None and not isinstance(folder, StorePath)]
    folders += config.allowed_root
    if not config.confined:
        folders.append(Path.cwd())
    fields: dict[str, Any] = {} if warn is None else {"warn": warn}
    return AllowedRoots.of(folders, scratch=scratch, is_enforced=config.confined, remedy=_REMEDY, **fields)
