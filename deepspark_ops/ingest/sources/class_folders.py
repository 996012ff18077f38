"""A folder of class folders: ``ROOT/cat/1.jpg``; an image's class is the first folder of its path."""

from __future__ import annotations

import hashlib
import logging
import os
import posixpath
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deepspark_ops.config.ingest import ARCHIVE_MARK, FileStamp
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.files.archive import Archive, is_archive, is_compressed, open_archive, split_member
from deepspark_ops.ingest.files.image_files import (
    FolderReader,
    file_stamps,
    is_image_name,
    source_digest,
    visible_files,
)
from deepspark_ops.ingest.findings import Finding, Findings
from deepspark_ops.ingest.records import RecordReader, Rejection, SourceIndex, labels_of, sorted_classes
from deepspark_ops.ingest.sources.format import Format, Look
from deepspark_ops.shards.manifest import SplitName
from deepspark_ops.stores.store_path import DataPath, StorePath, data_path

_log = logging.getLogger(__name__)
_TRAIN = "train"
_VALIDATIONS = ("val", "valid", "validation")
_TESTS = ("test", *_VALIDATIONS)
"""Below the root, in order of preference."""
_SETS = frozenset({_TRAIN, *_TESTS})
_LISTS = (".txt", ".csv", ".tsv", ".lst")
"""Endings of image lists in an archive."""
_SHOWN = 4
_UNPACK_UP_TO_BYTES = 2**28
"""A larger compressed archive is not unpacked for a message."""


@dataclass(frozen=True)
class _Tree:
    """Sorted image names below a root, with slashes; the images' reader; the names of other files."""

    names: tuple[str, ...]
    reader: RecordReader
    passed_by: Sequence[str] = ()


def index_class_folders(source: DataPath, work: DataPath) -> SourceIndex:
    """List the images without opening an image.

    Args:
        source: The root, ``ARCHIVE::ROOT``, or an archive whose one top folder, or itself, is the root.
        work: Scratch for a decompressed archive.

    Raises:
        ConfigError: The folders below are those of training and test set.
        DataError: No image in a folder, or the archive is damaged.
    """
    tree = _tree(source, work)
    in_class = [name for name in tree.names if "/" in name]
    texts = [name.partition("/")[0] for name in in_class]
    if not in_class:
        msg = f"{source}: no image in a folder of its class; {len(tree.names):,} images without one"
        raise DataError(msg)
    classes = sorted_classes(texts)
    if _are_sets(classes):
        msg = f"source={source} {_say_sets(source, classes)}"
        raise ConfigError(msg)
    _warn_of_deeper_classes(source, in_class)
    findings = Findings()
    for name in tree.passed_by:
        findings.add(Finding("file_passed_by", name, "is no image by its name"))
    at = np.array([position for position, name in enumerate(tree.names) if "/" in name], np.int64)
    return SourceIndex(
        labels=np.array(labels_of(texts, classes), np.int64),
        names=in_class,
        reader=tree.reader.subset(at),
        decode_color=True,  # as an image list
        rejected=tuple(
            Rejection(position, name, None, "the image lies in no class folder")
            for position, name in enumerate(tree.names)
            if "/" not in name
        ),
        class_names=classes,
        are_names=True,
        findings=findings,
    )


def _warn_of_deeper_classes(source: DataPath, names: Iterable[str]) -> None:
    """Warn of a class folder whose images all lie in several folders of its own: perhaps these are the classes."""
    folders_of: dict[str, set[str]] = {}
    for name in names:
        class_name, _, path = name.partition("/")
        folders_of.setdefault(class_name, set()).add(path.partition("/")[0] if "/" in path else "")
    for class_name, folders in sorted(folders_of.items()):
        if "" not in folders and len(folders) > 1:
            _log.warning(
                'ingest: %s: every image of class "%s" lies in one of %d folders below, e.g. %s/%s; if these are the'
                ' classes, give the folder "%s" as source',
                *(source, class_name, len(folders), class_name, min(folders), class_name),
            )
            return


def digest_class_folders(source: DataPath, by: FileStamp = "time") -> str:
    """Return a digest of every image's name and stamp, or of the archive's bytes."""
    path, member = split_member(source)
    if member is not None or path.is_file():
        return source_digest(path)
    digest = hashlib.sha256()
    names, _ = _names_below(path)
    for name, stamp in zip(names, file_stamps(path, names, by), strict=True):
        digest.update(name.encode("utf-8", "surrogateescape") + b"\0" + stamp)
    return digest.hexdigest()


def own_splits(source: DataPath) -> dict[SplitName, DataPath] | None:
    """Return the root of each split if the folders of ``source`` are ``train/`` and perhaps ``test/`` or ``val/``.

    With both, ``val/`` is the validation set. Sets without class folders, such as test images without labels, are
    ignored and logged.
    """
    path, member = split_member(source)
    if path.is_dir():
        folders = set(_class_folders(path))
        with_classes = {name for name in folders & _SETS if _class_folders(path / name)}
        roots = {name: path / name for name in folders}
    elif is_compressed(path):
        return None
    else:
        archive = open_archive(path, path.parent)  # listed in place: it is not compressed
        base = _root_in(archive, member)
        below = [name.split("/") for name in _members_below(archive, base) if "/" in name]
        folders = {parts[0] for parts in below}
        with_classes = {parts[0] for parts in below if len(parts) > 2}
        roots = {name: _member(path, posixpath.join(base, name)) for name in folders}
    if _TRAIN not in with_classes or not folders <= _SETS:
        return None
    tests = [name for name in _TESTS if name in with_classes]
    folder_of_split: dict[SplitName, str] = {"train": _TRAIN}
    if tests:
        folder_of_split["test"] = tests[0]
    if tests[:1] == ["test"] and len(tests) > 1:
        folder_of_split["validation"] = tests[1]
    if unread := folders - set(folder_of_split.values()):
        _log.warning("ingest: of %s the folders %s are not read", source, ", ".join(sorted(unread)))
    return {split: roots[name] for split, name in folder_of_split.items()}


def _are_sets(folders: Iterable[str]) -> bool:
    """Return whether folders are training and test set, and no classes; another folder, e.g. of masks, is allowed."""
    return set(folders) == {_TRAIN} or (_TRAIN in folders and not set(folders).isdisjoint(_TESTS))


def _member(archive: DataPath, name: str) -> DataPath:
    return data_path(f"{archive}{ARCHIVE_MARK}{posixpath.normpath(name)}")


def _say_sets(source: DataPath, folders: Iterable[str]) -> str:
    mark = "/" if ARCHIVE_MARK in str(source) or source.is_dir() else ARCHIVE_MARK
    tests = [name for name in _TESTS if name in folders]
    more = f" and test_source={source}{mark}{tests[0]}" if tests else ""
    return (
        f"has the folders {', '.join(sorted(folders))}, which are sets and no classes;"
        f" give source={source}{mark}{_TRAIN}{more}"
    )


def _say_members(source: DataPath) -> str:
    """Return the remedy for an archive without a member: its lists, and its folders of class folders."""
    lists, folders = (f", e.g. {source}{ARCHIVE_MARK}{name}" for name in ("train.txt", "images"))
    if not is_compressed(source) or source.stat().st_size <= _UNPACK_UP_TO_BYTES:
        with tempfile.TemporaryDirectory(prefix="deepspark-") as work:
            archive = open_archive(source, Path(work))
        names = sorted(name for name in archive.members if name.lower().endswith(_LISTS))
        root = _root_in(archive, None)
        below = [name.partition("/") for name in _members_below(archive, root)]
        classes = {name for name, slash, _ in below if slash}
        roots = [posixpath.join(root, _TRAIN)] if _are_sets(classes) else [root or "."] if classes else []
        if not names and not roots:
            return "is an archive without an image list and class folders; unpack it, and give the file or folder in it"
        lists, folders = _listed_members(source, names), _listed_members(source, roots)
    return f"is an archive; name the image list in it{lists}, or the folder of class folders{folders}"


def _listed_members(source: DataPath, names: Sequence[str]) -> str:
    """Return the members as sources, or that there is none."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return (
        f": {', '.join(f'{source}{ARCHIVE_MARK}{name}' for name in names[:_SHOWN])}{more}" if names else " (none there)"
    )


def _tree(source: DataPath, work: DataPath) -> _Tree:
    path, member = split_member(source)
    if member is None and path.is_dir():
        names, other_files = _names_below(path)
        return _Tree(names, FolderReader(path, names), other_files)
    archive = open_archive(path, work)
    if member in archive.members:
        msg = f"{source}: a file of the archive and no folder; source_format=image_list reads a list"
        raise ConfigError(msg)
    root = _root_in(archive, member)
    names = tuple(sorted(_members_below(archive, root)))
    if not names:
        folders = sorted({posixpath.dirname(name) for name in archive.members if "/" in name})[:8]
        msg = f"{source}: no image there; the archive's folders: {', '.join(folders) or 'none'}"
        raise DataError(msg)
    return _Tree(names, archive.reader([posixpath.join(root, name) for name in names]))


def _names_below(root: DataPath) -> tuple[tuple[str, ...], list[str]]:
    """Return sorted relative names of images and of other files below a folder; class folders may be links."""
    names = sorted(visible_files(root))
    return tuple(name for name in names if is_image_name(name)), [name for name in names if not is_image_name(name)]


def _members_below(archive: Archive, root: str) -> Iterable[str]:
    prefix = "" if root in ("", ".") else f"{root}/"
    for name in archive.members:
        inside = name[len(prefix) :]
        if name.startswith(prefix) and is_image_name(name) and not posixpath.basename(name).startswith("."):
            yield inside


def _root_in(archive: Archive, member: str | None) -> str:
    """Return the folder of the class folders: ``member``, or the end of a chain of single folders."""
    if member is not None:
        return member
    root = ""
    while True:
        below = [name.split("/", 2) for name in _members_below(archive, root)]
        tops = {parts[0] for parts in below}
        if len(tops) != 1 or min((len(parts) for parts in below), default=0) < 3 or tops == {_TRAIN}:
            return root
        root = posixpath.join(root, tops.pop())


def _looks_like(look: Look) -> bool:
    """Require two classes at least: a single folder may hold the images of a list."""
    if look.kind == "folder":
        classes = _class_folders(look.path)
        return own_splits(look.source) is not None or (len(classes) > 1 and not _are_sets(classes))
    if not is_archive(look.start):
        return False
    if is_compressed(look.path):
        # Without unpacking, the ending decides: a list's name has an ending, a folder's name has none.
        return look.member is not None and not posixpath.splitext(look.member)[1]
    archive = open_archive(look.path, look.path.parent)
    if look.member is not None:
        return look.member not in archive.members and any(True for _ in _members_below(archive, look.member))
    below = _members_below(archive, _root_in(archive, None))
    tops = {name.partition("/")[0] for name in below if "/" in name}
    return own_splits(look.source) is not None or (len(tops) > 1 and not _are_sets(tops))


def _class_folders(folder: DataPath) -> list[str]:
    """Return the visible folders in a folder with an image at any depth."""
    if isinstance(folder, StorePath):
        names = filter(is_image_name, visible_files(folder))
        return sorted({name.partition("/")[0] for name in names if "/" in name})
    entries = (entry for entry in os.scandir(folder) if not entry.name.startswith(".") and entry.is_dir())
    return sorted(entry.name for entry in entries if _holds_image(entry.path))


def _holds_image(folder: str) -> bool:
    """Return at the first image: a million images take no longer than ten."""
    inner = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_image_name(entry.name):
                return True
            if entry.is_dir(follow_symlinks=False):
                inner.append(entry.path)
    return any(_holds_image(path) for path in inner)


def _resembles(look: Look) -> str | None:
    if look.kind == "file" and is_archive(look.start):
        return _say_members(look.source)
    if look.kind != "folder" or any(look.path.glob("*.txt")):
        return None
    if _are_sets(folders := _class_folders(look.path)):
        return _say_sets(look.source, folders)
    inner = [name for name in folders if len(_class_folders(look.path / name)) > 1]
    if inner:
        return f"is a folder of no known format; did you mean the class folders in {look.path / inner[0]}?"
    images = sorted(path.name for path in look.path.iterdir() if is_image_name(path.name))
    if not images:
        return None
    return (
        f"is a folder of {len(images):,} images without classes, e.g. {images[0]}; put the images of each class into a"
        f" folder of its name, or write an image list ('path label' lines) and give it with root_folder={look.source}"
    )


FORMAT = Format(
    kinds=frozenset({"folder", "file", "member"}),
    looks_like=_looks_like,
    digest=lambda config, source: digest_class_folders(source, config.stamp),
    index=lambda _config, source, work: index_class_folders(source, work),
    resembles=_resembles,
    own_splits=own_splits,
)
