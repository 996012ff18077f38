"""The columns of a table that a bundle takes: named columns, else columns of the training, of usual names or kinds.

Kinds of columns, patterns of names and usual names are those of ingestion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from deepspark_ops.config.commands.predict import BundleInputConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.ingest.files.list_lines import PATH_WORDS
from deepspark_ops.ingest.tables.columns import (
    IMAGE_NAMES,
    KINDS,
    LABEL_NAMES,
    NUMBERS,
    Column,
    choose_names,
    columns_of,
    first_column,
    named_column,
)
from deepspark_ops.predict.samples import BundleForm, SampleForm
from deepspark_ops.shards.table_columns import TableColumns as TrainedColumns

_SHOWN_NAMES: Final = 12
_SHOWN_FEATURES: Final = 8
_NO_FEATURES: Final = frozenset({*LABEL_NAMES, *"id key index uuid row_id __index_level_0__".split()})


@dataclass(frozen=True)
class InputColumns:
    """The columns that are read.

    Attributes:
        image: Column of images or their paths; None if numbers are read.
        features: Columns with the numbers of a sample.
        id: Column that names the rows; None: paths or row numbers name the rows.
        inputs: For a bundle with several inputs: (input, column of the input); no other column but ``id`` is read.
        may_miss: Whether a number may be missing; the bundle fills a missing number, which is NaN.
        widths: Numbers of each feature in a row; empty for a single column of arrays.
        remarks: Differences from the training, for people.
    """

    image: str | None
    features: tuple[str, ...]
    id: str | None
    inputs: tuple[tuple[str, str], ...] = ()
    may_miss: bool = False
    widths: tuple[int, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of all columns that are read, each once."""
        columns_of_inputs = (column for _, column in self.inputs)
        names = (self.id, self.image, *self.features, *columns_of_inputs)
        return list(dict.fromkeys(name for name in names if name is not None))


def choose_columns(schema: pa.Schema, config: BundleInputConfig, form: BundleForm) -> InputColumns:
    """Return the columns that are read: the named columns, else the columns of usual names or kinds.

    Raises:
        ConfigError: A column does not exist, or the columns do not fit the bundle.
    """
    columns = columns_of(schema)
    try:
        named_column(columns, "id_column", config.id_column, set(KINDS))
        if len(form.inputs) > 1 or config.input_columns is not None:
            return InputColumns(None, (), config.id_column, _columns_of_inputs(schema.names, config, form))
        named_column(columns, "image_column", config.image_column, {"bytes", "text"})
        only_input = form.inputs[0]
        if config.image_column is not None or (config.feature_columns is None and only_input.n_values is None):
            return InputColumns(config.image_column or _image_column(columns), (), config.id_column)
        return _feature_columns(columns, config, only_input)
    except ConfigError as error:
        msg = f"input={config.input}: {error}"
        raise ConfigError(msg) from error


def with_chosen_features(config: BundleInputConfig, columns: InputColumns) -> BundleInputConfig:
    """Return the config with names of features in place of patterns, for a table that has only the chosen columns."""
    if config.feature_columns is None:
        return config
    return config.model_copy(update={"feature_columns": ",".join(columns.features)})


def _feature_columns(columns: Sequence[Column], config: BundleInputConfig, form: SampleForm) -> InputColumns:
    """Return the columns of features: the named columns, else those of the training, else all columns of numbers.

    Raises:
        ConfigError: A column does not exist, the named columns are those of the training in another order, or the
            columns hold another count of numbers than the bundle takes.
    """
    trained = () if form.table is None else tuple(column.name for column in form.table.features)
    present = [column.name for column in columns]
    remarks: tuple[str, ...] = ()
    if config.feature_columns is None:
        _require_trained(present, trained)
        names = trained or _number_columns(columns, config)
    else:
        usual = [name for name in trained if name in present] or _number_columns(columns, config)
        names = tuple(choose_names(config.feature_columns, present, usual))
        remarks = _compare_with_training(names, trained)
    if len(names) == 1 and any(column.name == names[0] and column.kind == "numbers" for column in columns):
        return InputColumns(None, names, config.id_column, may_miss=form.may_miss, remarks=remarks)
    widths = _widths(names, form.table)
    if not names or (form.n_values is not None and sum(widths) != form.n_values):
        shown = f" ({', '.join(names[:_SHOWN_FEATURES])}, ...)" if names else ""
        msg = (
            f"{len(names)} columns of numbers{shown}, the bundle takes {form.n_values} numbers; name them with"
            " feature_columns"
        )
        raise ConfigError(msg)
    return InputColumns(None, names, config.id_column, may_miss=form.may_miss, widths=widths, remarks=remarks)


def _require_trained(present: Sequence[str], trained: Sequence[str]) -> None:
    """Refuse a table without a column of the training."""
    if missing := [name for name in trained if name not in present]:
        msg = (
            f"no column {', '.join(missing[:_SHOWN_NAMES])}; the net was trained on {_order(trained)}, and the table"
            f" has {_shown(present)}; feature_columns names others, in the order of these"
        )
        raise ConfigError(msg)


def _compare_with_training(named: tuple[str, ...], trained: tuple[str, ...]) -> tuple[str, ...]:
    """Return remarks about named columns that are not those of the training.

    Raises:
        ConfigError: The named columns are those of the training, in another order.
    """
    if not trained or named == trained:
        return ()
    if sorted(named) == sorted(trained):
        msg = (
            f"feature_columns={','.join(named)}: the net was trained on {_order(trained)}, in this order; leave the"
            " option out"
        )
        raise ConfigError(msg)
    return (f"feature_columns={','.join(named)} take the places of {_order(trained)}, on which the net was trained",)


def _order(trained: Sequence[str]) -> str:
    n_more = len(trained) - _SHOWN_NAMES
    return ",".join(trained[:_SHOWN_NAMES]) + (f" and {n_more} more" if n_more > 0 else "")


def _widths(features: Sequence[str], trained: TrainedColumns | None) -> tuple[int, ...]:
    """Return the count of numbers of each column in a row: as in the training, else 1."""
    trained_widths = () if trained is None else tuple(column.width for column in trained.features)
    return trained_widths if len(trained_widths) == len(features) else (1,) * len(features)


def _columns_of_inputs(
    names: Sequence[str], config: BundleInputConfig, form: BundleForm
) -> tuple[tuple[str, str], ...]:
    """Return (input, column of the input) for each input of the bundle.

    Raises:
        ConfigError: A column does not exist, or the bundle has no such input.
    """
    if config.image_column is not None or config.feature_columns is not None:
        input_names = ", ".join(form.names)
        msg = f"the bundle takes {len(form.inputs)} inputs ({input_names}): name their columns with input_columns"
        raise ConfigError(msg)
    pairs = (part.split("=", 1) for part in (config.input_columns or "").split(",") if part)
    column_of = {name.strip(): column.strip() for name, column in pairs}
    if unknown := sorted(set(column_of) - set(form.names)):
        input_names = ", ".join(form.names)
        msg = f"input_columns={config.input_columns}: no input {', '.join(unknown)}; the bundle has {input_names}"
        raise ConfigError(msg)
    columns = tuple((name, column_of.get(name, name)) for name in form.names)
    for name, column in columns:
        if column not in names:
            msg = (
                f'bundle\'s input "{name}": no column {column} in the table; it has {_shown(names)}; say which one it'
                f" is: input_columns={name}=COLUMN"
            )
            raise ConfigError(msg)
    return columns


def _image_column(columns: Sequence[Column]) -> str:
    """Return the column of images: of a usual name, the only column of bytes, or a column of paths."""
    usual = first_column(columns, IMAGE_NAMES, {"bytes"}, ())
    if usual is not None:
        return usual.name
    binary = [column.name for column in columns if column.kind == "bytes"]
    paths = [column.name for column in columns if column.kind == "text" and column.name.lower() in PATH_WORDS]
    if len(binary) == 1 or (not binary and paths):
        return (binary or paths)[0]
    shown = _shown([column.name for column in columns])
    choice = f"several columns of bytes ({', '.join(binary)})" if binary else f"columns {shown}"
    msg = f"{choice}; name the one with images or their paths with image_column"
    raise ConfigError(msg)


def _number_columns(columns: Sequence[Column], config: BundleInputConfig) -> tuple[str, ...]:
    no_features = _NO_FEATURES | {(config.id_column or "").lower()}
    numbers = [column.name for column in columns if column.kind in NUMBERS and column.name.lower() not in no_features]
    arrays = [column.name for column in columns if column.kind == "numbers"]
    return tuple(arrays if len(arrays) == 1 and not numbers else numbers)


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "")
