"""Stage clean: selects unneeded folders, and removes the folders on request."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, Literal

from deepspark_ops.config.clean import CleanConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.file_lock import locked_folder
from deepspark_ops.frozen_model import FrozenModel
from deepspark_ops.retention.inventory import Kind, Stored, find_datasets, find_runs, last_change, run_folders
from deepspark_ops.retention.references import model_references, run_references
from deepspark_ops.run_paths import RunPaths
from deepspark_ops.sizes import size_text
from deepspark_ops.train.setup.dataset_users import current_users

CLEAN_VERSION: Final = 1
_REMOVED: Final = ".removed."
_DAY_S: Final = 86_400.0
_CLOCK_S: Final = 60.0
"""Tolerated delay of another host's clock."""
OnStep = Callable[[str], None]


class CleanEntry(FrozenModel):
    """A run or a dataset, with the decision about the removal.

    Attributes:
        kind: ``run`` or ``dataset``.
        path: Folder of the run or dataset.
        bytes: Size of the files.
        changed: Last change of a file in the folder; UTC, ISO 8601, whole seconds.
        goes: Whether the folder may be removed.
        removed: Whether the folder was removed.
        reason: Reason of the decision.
    """

    kind: Kind
    path: str
    bytes: int
    changed: str
    goes: bool
    removed: bool
    reason: str


class CleanReport(FrozenModel):
    """All runs and datasets of a home.

    Attributes:
        format_version: Version of this form.
        home: The folder.
        entries: All runs and datasets, runs first, by path.
    """

    format_version: Literal[1]
    home: str
    entries: tuple[CleanEntry, ...]

    def lines(self) -> list[str]:
        """Return what goes in a line each, and the sums."""
        going = [entry for entry in self.entries if entry.goes]
        lines = [
            f"{entry.kind} {entry.path}: {size_text(entry.bytes)}, {'removed' if entry.removed else entry.reason}"
            for entry in going
        ]
        if not going:
            return [f"nothing to remove; {len(self.entries):,} folders stay"]
        size = size_text(sum(entry.bytes for entry in going))
        word = "removed" if going[0].removed else "can be removed by the option remove; nothing is removed yet"
        return [*lines, f"{len(going):,} of {len(self.entries):,} folders, {size}: {word}"]


def clean(
    config: CleanConfig, *, on_step: OnStep, served_models: Path | None = None, now: float | None = None
) -> CleanReport:
    """Find unneeded folders below ``config.home``; remove the folders if ``config.remove`` is set.

    A folder is removed after ``older_than`` days without change. The newest folders of each kind stay, and also the
    sources of a model's versions and of remaining runs. A run elsewhere counts by the run's note in the dataset. The
    folder is first renamed, so a partly removed folder is never taken for a complete folder.

    Args:
        config: Options of the stage.
        on_step: Called with a text for each removal.
        served_models: Folder of an installation's models, protected beside ``config.models``.
        now: The time, seconds since the epoch; default: the clock's.

    Raises:
        ConfigError: The home does not exist, or its folders are links.
        DataError: A file with references to folders cannot be read; nothing is removed.
        OSError: A folder cannot be removed.
    """
    home = config.home.resolve()
    if not home.is_dir():
        msg = f"home={config.home}: no such folder"
        raise ConfigError(msg)
    started = time.time()
    oldest = (time.time() if now is None else now) - config.older_than * _DAY_S
    runs, datasets = find_runs(home), find_datasets(home)
    models = [folder for folder in (config.models, served_models) if folder is not None] or [home / "models"]
    stays = _used_by_models(models, runs, datasets)
    stays |= {path: reason for path, reason in _used_elsewhere(runs, datasets).items() if path not in stays}
    stays |= {path: reason for path, reason in _new_ones(config, runs, datasets, oldest).items() if path not in stays}
    stored_by_path = {stored.path: stored for stored in [*runs, *datasets]}
    _follow(stays, stored_by_path)
    if config.remove:
        _finish_earlier([stored.path.parent for stored in [*runs, *datasets]])
    entries = []
    for stored in [*runs, *datasets]:
        goes, reason = True, f"unchanged for {config.older_than} days or more, and nothing refers to it"
        if stored.path in stays:
            goes, reason = False, stays[stored.path]
        elif config.remove and not _remove(
            stored, oldest, on_step, partial(_is_named_now, home, models, stored, started)
        ):
            goes, reason = False, "somebody has begun to use it"
            stays[stored.path] = reason
            _follow(stays, stored_by_path)  # a remaining run keeps the folders that it names
        entries.append(_entry(stored, goes=goes, removed=goes and config.remove, reason=reason))
    return CleanReport(format_version=CLEAN_VERSION, home=str(home), entries=tuple(entries))


def _used_by_models(models: Collection[Path], runs: Sequence[Stored], datasets: Sequence[Stored]) -> dict[Path, str]:
    """Return folder -> version with the folder as source, for the models of several folders."""
    return {path: reason for folder in models for path, reason in model_references(folder, runs, datasets).items()}


def _used_elsewhere(runs: Sequence[Stored], datasets: Sequence[Stored]) -> dict[Path, str]:
    """Return dataset -> user, for each dataset with a note of a run outside of the home."""
    known_runs = {run.path for run in runs}
    return {
        dataset.path: f"run {user.run_dir} of host {user.host} uses it"
        for dataset in datasets
        for user in current_users(dataset.path)
        if user.run_dir.resolve() not in known_runs
    }


def _new_ones(
    config: CleanConfig, runs: Sequence[Stored], datasets: Sequence[Stored], oldest: float
) -> dict[Path, str]:
    reasons: dict[Path, str] = {}
    groups: dict[Path, list[Stored]] = {}
    for run in runs:
        groups.setdefault(run.path.parent, []).append(run)
    for group in groups.values():
        reasons |= _newest(
            group, config.keep_runs, f"one of the {config.keep_runs} newest runs in {group[0].path.parent}"
        )
    reasons |= _newest(datasets, config.keep_datasets, f"one of the {config.keep_datasets} newest datasets")
    for stored in [*runs, *datasets]:
        if stored.changed > oldest:
            reasons[stored.path] = f"changed in the last {config.older_than} days"
    return reasons


def _newest(group: Sequence[Stored], count: int, reason: str) -> dict[Path, str]:
    ordered = sorted(group, key=lambda stored: (stored.changed, stored.path), reverse=True)
    return {stored.path: reason for stored in ordered[:count]}


def _follow(stays: dict[Path, str], stored_by_path: Mapping[Path, Stored]) -> None:
    """Add the folders named by remaining runs, recursively."""
    waiting = [path for path in stays if stored_by_path[path].kind == "run"]
    while waiting:
        run = waiting.pop()
        for path in run_references(run, stored_by_path) - set(stays):
            stays[path] = f"run {run.name} uses it, which stays: {stays[run]}"
            if stored_by_path[path].kind == "run":
                waiting.append(path)


def _remove(stored: Stored, oldest: float, on_step: OnStep, is_named: Callable[[], bool]) -> bool:
    """Remove a folder unless a process has begun to use it; return True after a removal."""
    with unused(stored) as is_free:
        if not is_free or last_change(stored.path) > oldest or is_named():
            return False
        hidden = stored.path.with_name(f"{_REMOVED}{stored.path.name}")
        stored.path.rename(hidden)
        if last_change(hidden) > oldest:  # a run changed it between the check and the rename
            hidden.rename(stored.path)
            return False
        on_step(f"removing {stored.kind} {stored.path}: {size_text(stored.n_bytes)}")
    shutil.rmtree(hidden)
    return True


def _is_named_now(home: Path, models: Collection[Path], stored: Stored, started: float) -> bool:
    """Return whether a version of a model, or a run started since ``started``, refers to a folder.

    A removal takes minutes; meanwhile runs start and models are promoted.

    Raises:
        DataError: A file with references to folders cannot be read.
    """
    if _used_by_models(models, [stored], [stored]):
        return True
    runs = [run for run in run_folders(home) if run != stored.path and _config_changed(run) >= started - _CLOCK_S]
    return any(stored.path in run_references(run, {stored.path: stored}) for run in runs)


def _config_changed(run: Path) -> float:
    """Return the last change of a run's configs, seconds since the epoch."""
    changed = 0.0
    for path in (RunPaths(run).config, RunPaths(run).stages):
        with suppress(FileNotFoundError):
            changed = max(changed, path.stat().st_mtime)
    return changed


@contextmanager
def unused(stored: Stored) -> Iterator[bool]:
    """Hold the locks of an ingestion into the dataset; yield False if another process holds a lock.

    Runs have no locks.
    """
    lock = stored.path.with_name(f".{stored.path.name}.lock")
    if stored.kind == "run" or lock.is_symlink():
        yield stored.kind == "run"
        return
    with lock.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        with locked_folder(stored.path) as is_free:
            yield is_free


def _finish_earlier(parents: Sequence[Path]) -> None:
    """Remove what an earlier removal had renamed and then left."""
    for parent in dict.fromkeys(parents):
        for path in parent.glob(f"{_REMOVED}*"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)


def _entry(stored: Stored, *, goes: bool, removed: bool, reason: str) -> CleanEntry:
    changed = datetime.fromtimestamp(stored.changed, UTC).isoformat(timespec="seconds")
    return CleanEntry(
        kind=stored.kind,
        path=str(stored.path),
        bytes=stored.n_bytes,
        changed=changed,
        goes=goes,
        removed=removed,
        reason=reason,
    )
