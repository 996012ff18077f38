"""Preprocessing of a bundle's input, as numbers and as the words of ``manifest.json``, with conversions both ways."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from caffe_import.data.transform import TransformOptions
from caffe_import.file_access.regular_file import regular_bytes
from caffe_import.files.mean_file import read_mean
from deepspark_ops.errors import DataError
from deepspark_ops.export.manifest import FEATURES_NAME, MEAN_NAME, InputContract
from deepspark_ops.shards.table_columns import TableColumns

TO_BGR = "channels to BGR"
FILL = f"fill missing features, NaN ({FEATURES_NAME})"
STANDARDIZE = f"subtract each feature's mean and divide by its standard deviation ({FEATURES_NAME})"
_MEAN_IMAGE = f"subtract the mean image ({MEAN_NAME})"
_CROP = re.compile(r"cut out the central (\d+) x \1 pixels")
_MEAN_VALUES = re.compile(r"subtract (.+) per channel \(BGR\)")
_SCALE = re.compile(r"multiply by (.+)")


def steps_in_words(options: TransformOptions | None) -> list[str]:
    """Return what is done to an image, in order.

    Example:
        >>> steps_in_words(TransformOptions(crop_size=12, mean_values=(104.0, 116.5, 123.0), scale=0.5))[:2]
        ['cut out the central 12 x 12 pixels', 'subtract 104, 116.5, 123 per channel (BGR)']
    """
    steps: list[str] = []
    if options is None:
        return steps
    if options.crop_size:
        steps.append(f"cut out the central {options.crop_size} x {options.crop_size} pixels")
    if options.mean is not None:
        steps.append(_MEAN_IMAGE)
    elif options.mean_values:
        steps.append(f"subtract {', '.join(f'{value:.9g}' for value in options.mean_values)} per channel (BGR)")
    if options.scale != 1.0:
        steps.append(f"multiply by {options.scale:.9g}")
    return steps


def table_steps_in_words(table: TableColumns) -> list[str]:
    """Return the preprocessing steps of a table, in order; empty if the features are used unchanged."""
    return [*([FILL] if table.fill_values() is not None else []), *([STANDARDIZE] if table.is_standardized else [])]


def table_of_input(contract: InputContract, bundle: Path) -> TableColumns | None:
    """Return the columns of an input's features with their preprocessing; None if the columns are unknown.

    Raises:
        DataError: The file of the columns is missing or damaged.
    """
    if not contract.is_table and not {FILL, STANDARDIZE} & set(contract.preprocessing):
        return None
    try:
        return TableColumns.model_validate_json(regular_bytes(bundle / FEATURES_NAME))
    except (OSError, ValidationError) as error:
        msg = f"{bundle / FEATURES_NAME}: cannot be read: {str(error).splitlines()[0]}; export again"
        raise DataError(msg) from error


def options_from_words(steps: Sequence[str], bundle: Path) -> TransformOptions:
    """Return the transform of a bundle's steps, without the steps to BGR and of features.

    Raises:
        DataError: A step that this release does not know.
        WeightsError: The mean image cannot be read.
    """
    crop_size, scale, mean = 0, 1.0, None
    mean_values: tuple[float, ...] = ()
    for step in steps:
        if step in (TO_BGR, FILL, STANDARDIZE):
            continue
        if step == _MEAN_IMAGE:
            mean = read_mean(bundle / MEAN_NAME)
        elif match := _CROP.fullmatch(step):
            crop_size = int(match[1])
        elif match := _MEAN_VALUES.fullmatch(step):
            mean_values = tuple(float(value) for value in match[1].split(","))
        elif match := _SCALE.fullmatch(step):
            scale = float(match[1])
        else:
            msg = f'{bundle}: its input has the step "{step}", which this release does not know; export again'
            raise DataError(msg)
    return TransformOptions(crop_size=crop_size, mean=mean, mean_values=mean_values, scale=scale)
