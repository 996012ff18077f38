"""Changes of a model's folder: promotion, rollback, retention, and the history's lines of decisions.

Every change holds the model's lock, writes the history before the pointer, and replaces the pointer by a rename.
"""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deepspark_ops.config.promote import PromoteConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.export.manifest import MANIFEST_NAME, file_digest, read_manifest, unlisted_files
from deepspark_ops.file_lock import held_lock
from deepspark_ops.registry.gate import Decision
from deepspark_ops.registry.journal import JOURNAL_VERSION, Action, HistoryEntry, append_entry, read_history
from deepspark_ops.registry.model_folder import LOCK_TIMEOUT_S, ModelFolder, RegistryBusy
from deepspark_ops.registry.production import PRODUCTION_VERSION, Production, read_pointer, write_pointer
from deepspark_ops.registry.versions import (
    VersionRecord,
    find_version,
    make_record,
    next_version,
    now_text,
    read_versions,
    write_record,
)
from deepspark_ops.run_paths import RunPaths, sync_folder
from deepspark_ops.train.setup.run_dataset import noted_digest

_log = logging.getLogger(__name__)
_COPY = ".new."
"""Prefix of the name of a copied bundle before it becomes a version."""
_LOCK = ".lock"
"""Suffix of the lock file that the copying process holds."""


@dataclass(frozen=True)
class Author:
    """Author of a change, with a comment.

    Attributes:
        name: A user, or the kind of a scheduled Airflow run.
        comment: Comment of the author.
    """

    name: str
    comment: str | None = None


def promote(
    bundle: Path, decision: Decision, config: PromoteConfig, author: Author, *, run_dir: Path | None = None
) -> Production:
    """Copy a bundle into the versions, set the production pointer, and remove versions beyond ``keep``.

    A repeated call with the bundle in production changes nothing.

    Args:
        bundle: A complete bundle.
        decision: The decision to record; must promote.
        config: Folder of models, the model's name, and the number of bundles to keep.
        author: Author in the history.
        run_dir: Run of the bundle.

    Raises:
        ConfigError: The decision does not promote, or compared another version than the present production.
        DataError: The bundle is incomplete.
        RegistryBusy: Another process has held the lock for too long.
    """
    if not decision.promotes:
        msg = f"decision says: {decision.reason}; only a better model goes into production"
        raise ConfigError(msg)
    read_manifest(bundle)
    model = ModelFolder(config.models / config.model)
    with _copied(bundle, model) as copy, model.locked():
        records = _adopt(model, author)
        previous = read_pointer(model)
        digest = file_digest(copy / MANIFEST_NAME)
        if previous is not None and previous.manifest_digest == digest:
            return previous
        _require_same_champion(decision, previous)
        record = _add_version(model, records, copy, digest, run_dir)
        production = _move(
            model,
            record,
            previous,
            author,
            action="promoted",
            reason=decision.reason,
            decision=decision,
            run_dir=run_dir,
        )
        _remove_old(model, config.keep, author)
    return production


def roll_back(model: ModelFolder, author: Author, *, to: str | None = None, was: str | None = None) -> Production:
    """Put an earlier version back into production.

    Args:
        model: Folder of the model.
        author: Author in the history; the comment is the reason.
        to: ``v6``, ``6``, or a run's name; None: the version before the present version.
        was: Version that the author believes to be in production; None: any version.

    Raises:
        ConfigError: The version does not exist or is in production already, or no earlier version exists, or a version
            other than ``was`` is in production.
        DataError: The version's bundle was removed or is damaged.
        RegistryBusy: Another process has held the lock for too long.
    """
    if not model.root.is_dir():
        msg = f"{model.root}: no such model"
        raise ConfigError(msg)
    with model.locked():
        records = _adopt(model, author)
        previous = _pointer_or_none(model) if to else read_pointer(model)
        if was is not None and (previous is None or previous.version != was):
            now = previous.version if previous else "nothing"
            msg = f'model "{model.name}": {now} is in production by now, no more {was}; look at it again'
            raise ConfigError(msg)
        record = find_version(records, to) if to else find_version(records, _previous_version(model, previous))
        if previous is not None and record.version == previous.version:
            msg = f'model "{model.name}": {record.version} is in production already'
            raise ConfigError(msg)
        bundle = model.bundle(record.folder)
        if not bundle.is_dir():
            msg = f"{record.version}: its bundle was removed (option keep); there are: {_present(model, records)}"
            raise DataError(msg)
        read_manifest(bundle)
        start = previous.version if previous else "nothing"
        reason = f"rolled back from {start} to {record.version}" + (f": {author.comment}" if author.comment else "")
        return _move(model, record, previous, author, action="rolled back", reason=reason)


def note_rejected(config: PromoteConfig, decision: Decision, author: Author, run_dir: Path) -> None:
    """Add a rejected candidate of a run to the history, with the digest of its training set; once per run and reason.

    Args:
        config: Folder of models and the model's name.
        decision: Decision, which does not promote.
        author: Author in the history.
        run_dir: The candidate's run, or its bundle if the run is unknown.

    Raises:
        RegistryBusy: Another process has held the lock for too long.
    """
    model = ModelFolder(config.models / config.model)
    with model.locked():
        production = read_pointer(model)
        run = run_dir.name
        entry = _entry(author, "kept", version=None, previous=None, reason=decision.reason, run=run, decision=decision)
        entry = entry.model_copy(update={"train_digest": noted_digest(RunPaths(run_dir))})
        history = read_history(model, production.change if production else 0)
        if not any((old.run, old.action, old.reason) == (run, "kept", entry.reason) for old in history):
            append_entry(model, entry)


def _pointer_or_none(model: ModelFolder) -> Production | None:
    """A damaged pointer is what a rollback to a named version repairs."""
    try:
        return read_pointer(model)
    except DataError as error:
        _log.warning("%s", error)
        return None


def _adopt(model: ModelFolder, author: Author) -> tuple[VersionRecord, ...]:
    """Write the missing records of bundles without a record; return all records."""
    records = read_versions(model)
    for record in records:
        if not model.record(record.version).is_file():
            write_record(model, record)
            reason = f"bundle of run {record.origin.run}, found without a record, is {record.version}"
            append_entry(model, _entry(author, "adopted", record.version, None, reason, record.origin.run))
    return records


def _require_same_champion(decision: Decision, previous: Production | None) -> None:
    against, now = decision.against, previous.version if previous else None
    if decision.format_version == 1 or decision.is_forced or against == now:
        return
    msg = (
        f"the candidate was compared with {against or 'nothing'}, but {now or 'nothing'} is in production now; decide "
        'again: clear the tasks from "evaluate_production" on, or deepspark models promote'
    )
    raise ConfigError(msg)


@contextmanager
def _copied(bundle: Path, model: ModelFolder) -> Iterator[Path]:
    """Yield a checked copy of a bundle's listed files in a hidden folder among the versions, made before the lock."""
    model.versions.mkdir(parents=True, exist_ok=True)
    _remove_abandoned_copies(model)
    folder = model.versions / f"{_COPY}{uuid.uuid4().hex}"
    lock = folder.with_name(folder.name + _LOCK)
    busy = RegistryBusy(f"{lock}: the copy of {bundle} is being removed by another promotion; try again")
    with held_lock(lock, LOCK_TIMEOUT_S, busy):
        try:
            folder.mkdir()
            shutil.copytree(bundle, folder, dirs_exist_ok=True)
            folder.chmod(0o755)
            for name in unlisted_files(folder, read_manifest(folder)):
                (folder / name).unlink()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)


def _remove_abandoned_copies(model: ModelFolder) -> None:
    """Remove copies of killed promotions: no process holds the locks of these copies."""
    for lock in model.versions.glob(f"{_COPY}*{_LOCK}"):
        with suppress(RegistryBusy), held_lock(lock, 0, RegistryBusy(str(lock))):
            shutil.rmtree(lock.with_name(lock.name.removesuffix(_LOCK)), ignore_errors=True)
            lock.unlink(missing_ok=True)


def _add_version(
    model: ModelFolder, records: Sequence[VersionRecord], copy: Path, digest: str, run_dir: Path | None
) -> VersionRecord:
    """Return the record of the bundle; a new bundle gets the next number."""
    for record in records:
        if record.manifest_digest == digest and model.bundle(record.folder).is_dir():
            return record
    version = next_version(records)
    folder = model.bundle(version)
    copy.rename(folder)
    sync_folder(model.versions)
    record = make_record(version, folder, read_manifest(folder), records, run_dir=run_dir)
    write_record(model, record)
    return record


def _move(
    model: ModelFolder,
    record: VersionRecord,
    previous: Production | None,
    author: Author,
    *,
    action: Action,
    reason: str,
    decision: Decision | None = None,
    run_dir: Path | None = None,
) -> Production:
    production = Production(
        format_version=PRODUCTION_VERSION,
        model=model.name,
        version=record.version,
        folder=record.folder,
        promoted=now_text(),
        who=author.name,
        manifest_digest=record.manifest_digest,
        previous=previous.version if previous else None,
        change=_last_change(model, previous) + 1,
        decision=decision,
        reason=reason,
    )
    run = run_dir.name if run_dir else None
    entry = _entry(author, action, production.version, production.previous, reason, run, decision, production.change)
    append_entry(model, entry)
    write_pointer(model, production)
    return production


def _last_change(model: ModelFolder, previous: Production | None) -> int:
    """Return the number of the last change; if the pointer is lost, the highest number in the history."""
    if previous is not None:
        return previous.change
    return max((entry.change or 0 for entry in read_history(model, 1 << 62)), default=0)


def _previous_version(model: ModelFolder, production: Production | None) -> str:
    if production is None:
        msg = f'model "{model.name}": nothing is in production, so there is nothing to roll back; give --to VERSION'
        raise ConfigError(msg)
    history = read_history(model, production.change)
    promotions = [
        entry.previous for entry in history if (entry.action, entry.version) == ("promoted", production.version)
    ]
    previous = promotions[-1] if promotions else production.previous
    if previous is None:
        msg = f'model "{model.name}": {production.version} is the first in production, nothing came before it'
        raise ConfigError(msg)
    return previous


def _remove_old(model: ModelFolder, keep: int | None, author: Author) -> None:
    """Remove the oldest bundles above ``keep``; what is in production stays, and the records stay."""
    production = read_pointer(model)
    present = [record for record in read_versions(model) if model.bundle(record.folder).is_dir()]
    n_surplus = 0 if keep is None else len(present) - keep
    removable = [record for record in present if production is None or record.version != production.version]
    for record in removable[: max(0, n_surplus)]:
        hidden = model.versions / f".removed.{record.folder}"
        model.bundle(record.folder).rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)
        reason = f"removed the bundle of {record.version}: {keep} are kept"
        append_entry(model, _entry(author, "removed", record.version, None, reason, record.origin.run))


def _present(model: ModelFolder, records: Sequence[VersionRecord]) -> str:
    return ", ".join(record.version for record in records if model.bundle(record.folder).is_dir()) or "none is left"


def _entry(
    author: Author,
    action: Action,
    version: str | None,
    previous: str | None,
    reason: str,
    run: str | None,
    decision: Decision | None = None,
    change: int | None = None,
) -> HistoryEntry:
    comparison = decision.comparison if decision else None
    return HistoryEntry(
        format_version=JOURNAL_VERSION,
        at=now_text(),
        who=author.name,
        action=action,
        version=version,
        previous=previous,
        reason=reason,
        comment=author.comment,
        run=run,
        change=change,
        candidate=decision.candidate if decision else None,
        production=decision.production if decision else None,
        gain=comparison.gain if comparison else None,
        p_value=comparison.p_value if comparison else None,
    )
