"""Which options of a table's ingestion say how its rows are read, and which do not go together."""

from __future__ import annotations

from collections.abc import Sequence

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.selection.choice import require_classes
from deepspark_ops.ingest.tables.columns import TableRoles
from deepspark_ops.ingest.tables.listed_rows import read_listed_rows
from deepspark_ops.ingest.tables.row_batch import RowRecipe


def row_recipe(
    config: IngestConfig, roles: TableRoles, widths: Sequence[int], class_names: Sequence[str] = ()
) -> RowRecipe:
    """Return how a table's rows are read.

    Args:
        config: What is asked for.
        roles: What each column is used for.
        widths: Numbers in a row of each feature column.
        class_names: In label order, where a file gives them.

    Raises:
        ConfigError: Options that do not go together.
    """
    label = roles.labels[0]
    if given := _image_options(config):
        msg = f"{', '.join(given)}: for images, and {config.source} is a table of features; name an image_column"
        raise ConfigError(msg)
    if config.split_list is not None and roles.id is None:
        msg = (
            f"split_list={config.split_list}: a row of {config.source} has no name that a list could have; give"
            " id_column, or split_column if the table itself says it"
        )
        raise ConfigError(msg)
    if config.label_kind == "value" or len(roles.labels) > 1:
        require_classes(config, 0)
    if config.n_classes is not None and class_names and len(class_names) != config.n_classes:
        msg = f"n_classes={config.n_classes}, but {config.class_names} names {len(class_names)}; give one of them"
        raise ConfigError(msg)
    if config.label_kind == "class" and len(roles.labels) > 1:
        msg = "label_kind=class: several label columns are values, 0 and 1 for classes that do not exclude each other"
        raise ConfigError(msg)
    if config.label_kind == "value" and label.kind == "text":
        msg = f'label_kind=value: label "{label.name}" holds text, which is the name of a class'
        raise ConfigError(msg)
    return RowRecipe(
        roles=roles,
        widths=tuple(widths),
        missing=config.missing,
        label_kind=config.label_kind,
        n_classes=config.n_classes if config.n_classes is not None else len(class_names) or None,
        class_names=tuple(class_names) if label.kind == "text" else (),
        test_fraction=config.test_fraction if config.test_source is None else 0.0,
        validation_fraction=config.validation_fraction if config.validation_source is None else 0.0,
        seed=config.seed,
        shuffle=config.shuffle,
        listed=None if config.split_list is None else read_listed_rows(config.split_list),
    )


def _image_options(config: IngestConfig) -> list[str]:
    names = (
        "encoded",
        "resize_height",
        "resize_width",
        "gray",
        "max_pixel",
        "scaled_decoding",
        "decode_mib",
        "root_folder",
    )
    values = {name: getattr(config, name) for name in names}
    return [f"{name}={value}" for name, value in values.items() if value != IngestConfig.model_fields[name].default]
