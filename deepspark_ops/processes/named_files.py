"""Limits what this process reads and imports because a net or a solver names it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from caffe_import.files.allowed_roots import AllowedRoots, use_allowed_roots
from caffe_import.net.python_layers import allow_python_modules
from deepspark_ops.config.shared_options.named_files import ListedFiles, NamedFiles
from deepspark_ops.stores.store_path import StorePath

_REMEDY = "move it there, or allow its folder: --allowed-root, in Airflow DEEPSPARK_ALLOWED_ROOTS"


def limit_named_files(
    config: NamedFiles,
    own: Iterable[Path | None],
    *,
    scratch: Path | None = None,
    warn: Callable[[str], None] | None = None,
) -> None:
    """Let this process follow what nets and solvers name as the config says, until it is called again.

    Args:
        config: The options.
        own: Folders that belong to what is run: the solver's, the dataset, the run's. None and stores are passed over.
        scratch: Temporary folder of this process, which no message names.
        warn: Is told of each folder outside of them that is read all the same; default: the log.
    """
    use_allowed_roots(allowed_roots(config, own, scratch=scratch, warn=warn))
    allow_python_modules(None if config.allow_python_layers else config.python_layers)


def allowed_roots(
    config: ListedFiles,
    own: Iterable[Path | None],
    *,
    scratch: Path | None = None,
    warn: Callable[[str], None] | None = None,
) -> AllowedRoots:
    """Return the roots that ``limit_named_files`` uses; the working directory is one where it is a user's choice."""
    folders = [folder for folder in own if folder is not None and not isinstance(folder, StorePath)]
    folders += config.allowed_root
    if not config.confined:
        folders.append(Path.cwd())
    fields: dict[str, Any] = {} if warn is None else {"warn": warn}
    return AllowedRoots.of(folders, scratch=scratch, is_enforced=config.confined, remedy=_REMEDY, **fields)
