"""The recipe of a dataset: its sources with digests, the options that decide the samples, and a digest over all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from caffe_import.file_access.text_file import read_text_file, text_lines
from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.files.archive import open_archive, read_member_text, split_member
from deepspark_ops.ingest.files.image_files import source_digest
from deepspark_ops.ingest.records import require_utf8
from deepspark_ops.ingest.selection.splits import digest_of_split_list
from deepspark_ops.ingest.sources.registry import digest_source, resolve_format
from deepspark_ops.ingest.versions.base import options_of_samples
from deepspark_ops.shards.manifest import SourceRecord, SplitName
from deepspark_ops.stores.store_path import DataPath

_RECIPE_VERSION = 3
"""Raise it when the same config would make other shards than before: every dataset is then written anew."""


@dataclass(frozen=True)
class Recipe:
    """The input of a dataset's bytes: sources with digests, options, and a digest over all.

    Attributes:
        sources: Split -> source; a split without an entry comes out of the training source.
        sha256: Digest over sources and options.
        options: Options that decide the samples.
    """

    sources: Mapping[SplitName, SourceRecord]
    sha256: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def source(self, split: SplitName) -> SourceRecord:
        """Return the source of a split's samples."""
        return self.sources.get(split, self.sources["train"])


def make_recipe(config: IngestConfig, *, is_preview: bool = False) -> Recipe:
    """Digest the sources and the options; no record is read.

    For a preview all digests are empty: they would read every byte of the sources.

    Raises:
        ConfigError: A source does not exist or is of no known format.
        DataError: A source cannot be read.
    """
    sources = {}
    for split, source in own_sources(config).items():
        name = resolve_format(config, source)
        digest = "" if is_preview else digest_source(config, source, name)
        sources[split] = SourceRecord(path=str(source), format=name, sha256=digest)
    options = options_of_samples(config)
    if is_preview:
        return Recipe(sources, "", options)
    names = "" if config.class_names is None else _digest_of_names(config.class_names)
    digests = {split: source.sha256 for split, source in sources.items()}
    if config.test_source is None and config.test_fraction > 0:
        digests["test"] = digests["train"]
    parts = [_RECIPE_VERSION, options, names, digests]
    if config.split_list is not None:
        parts.append(digest_of_split_list(config.split_list))
    text = json.dumps(parts, sort_keys=True)
    return Recipe(sources, hashlib.sha256(text.encode()).hexdigest(), options)


def own_sources(config: IngestConfig) -> dict[SplitName, DataPath]:
    """Return split -> source, for the splits that do not come out of the training source."""
    sources: dict[SplitName, DataPath | None] = {
        "train": config.source,
        "validation": config.validation_source,
        "test": config.test_source,
    }
    return {split: source for split, source in sources.items() if source is not None}


def with_content(recipe: Recipe, digests: Mapping[SplitName, str]) -> Recipe:
    """Return a recipe with digests of rows, for sources without files."""
    sources = {split: source.model_copy(update={"sha256": digests[split]}) for split, source in recipe.sources.items()}
    text = " ".join([recipe.sha256, *(source.sha256 for source in sources.values())])
    return replace(recipe, sources=sources, sha256=hashlib.sha256(text.encode()).hexdigest())


def read_class_names(class_names: DataPath, work: DataPath) -> tuple[str, ...]:
    """Return the names of a file, or member of an archive, in label order.

    Raises:
        ConfigError: It is empty.
        DataError: A name is no UTF-8 text.
    """
    path, member = split_member(class_names)
    if member is not None:
        text = read_member_text(open_archive(path, work), member)
    else:
        text = read_text_file(path)
    names = text_lines(text)
    if not names:
        msg = f"class_names={class_names}: the file is empty"
        raise ConfigError(msg)
    require_utf8(names)
    return names


def _digest_of_names(class_names: DataPath) -> str:
    path, _ = split_member(class_names)
    if not path.is_file():
        msg = f"class_names={class_names}: no such file"
        raise ConfigError(msg)
    return source_digest(path)
