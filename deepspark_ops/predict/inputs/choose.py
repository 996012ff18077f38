"""The kind of an input, by its path and content, or by an option."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deepspark_ops.config.commands.predict import BundleInputConfig, InputFormat
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.files.archive import split_member
from deepspark_ops.ingest.files.image_files import is_image_name
from deepspark_ops.ingest.sources.registry import detect_format, require_source
from deepspark_ops.predict.inputs.image_files import first_listed, has_images, images_below, listed_images, one_image
from deepspark_ops.predict.inputs.stored import source_records, stored_samples
from deepspark_ops.predict.record import Inputs
from deepspark_ops.predict.samples import BundleForm
from deepspark_ops.run_paths import DatasetPaths
from deepspark_ops.shards.manifest import is_dataset, split_manifest_path
from deepspark_ops.stores.staging import staging_of, use_staging
from deepspark_ops.stores.store_path import DataPath

_TABLE_NAMES: Final[Mapping[str, InputFormat]] = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"}
"""Ending of a name -> format. A name decides also for files that ingestion would not take for a table."""
_TABLES: Final[Mapping[str, InputFormat]] = {
    "parquet": "parquet",
    "csv": "csv",
    "orc": "orc",
    "avro": "avro",
    "json_lines": "json_lines",
}
"""Format of raw data -> format of the input, for tables of files."""


def open_inputs(config: BundleInputConfig, form: BundleForm) -> Inputs:
    """Return the inputs that ``config.input`` names, for a bundle's form of samples.

    Raises:
        ConfigError: The input does not exist, is of no known kind, or cannot serve a bundle of several inputs.
        DataError: The input is damaged.
    """
    use_staging(staging_of(config.staging_folder, config.staging_size))
    path = config.input
    require_source(path, option="input")
    kind = _look(path) if config.input_format == "auto" else config.input_format
    if kind in ("parquet", "csv", "orc", "avro", "json_lines"):
        from deepspark_ops.predict.inputs.table import table_inputs  # the import of pyarrow takes a moment

        return table_inputs(config, form, kind)
    only_input = form.only_input(config.bundle)
    if kind is None:
        return source_records(config, detect_format(path), only_input.contract.name)
    if kind == "dataset":
        return stored_samples(_split_folder(path, config.split), only_input)
    if kind == "folder":
        return images_below(path) if path.is_dir() else one_image(path)
    return listed_images(config)


def _look(path: DataPath) -> InputFormat | None:
    """Return the kind of an input; None for a format of raw data."""
    if split_member(path)[1] is not None:
        return None
    return _look_at_folder(path) if path.is_dir() else _look_at_file(path)


def _look_at_folder(path: DataPath) -> InputFormat | None:
    if is_dataset(path) or split_manifest_path(path).is_file():
        return "dataset"
    if any(path.rglob("*.parquet")):
        return "parquet"
    try:
        source_format = detect_format(path)
    except ConfigError:
        if not has_images(path):
            raise
        return "folder"
    return "folder" if source_format == "class_folders" else _TABLES.get(source_format)


def _look_at_file(path: DataPath) -> InputFormat | None:
    suffix = path.suffix.lower()
    if suffix == ".csv" and is_image_name(first_listed(path)):
        return "list"  # the first line has no names of columns
    if suffix in _TABLE_NAMES:
        return _TABLE_NAMES[suffix]
    if is_image_name(path.name):
        return "folder"
    source_format = detect_format(path)
    if source_format != "image_list":
        return _TABLES.get(source_format)
    first = first_listed(path)
    if not is_image_name(first) and not (path.parent / first).is_file():
        msg = (
            f'input={path}: its first line names "{first[:80]}", no image by its name and no file beside the list; if'
            " it is one all the same: input_format=list, with root_folder if its paths start elsewhere"
        )
        raise ConfigError(msg)
    return "list"


def _split_folder(path: DataPath, split: str) -> DataPath:
    if not is_dataset(path):
        return path
    folder = DatasetPaths(path).split(split)
    if not split_manifest_path(folder).is_file():
        msg = f"input={path}: a dataset without a set {split}; give another one with split"
        raise ConfigError(msg)
    return folder
