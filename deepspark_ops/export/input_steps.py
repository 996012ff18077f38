"""What a bundle does to its input, as numbers and as the words of ``manifest.json``; either way back gives the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from caffe_import.data.transform import TransformOptions
from caffe_import.files.mean_file import read_mean
from caffe_import.files.regular_file import regular_bytes
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
    """Return what is done to a table's features, in order; nothing where they are taken as they are."""
    return [*([FILL] if table.fill_values() is not None else []), *([STANDARDIZE] if table.is_standardized else [])]


def table_of_input(contract: InputContract, bundle: Path) -> TableColumns | None:
    """Return the columns of an input's features, and how the bundle treats them; None if they are not known.

    Raises:
        DataError: Their file is missing or damaged.
    """
    if not contract.is_table and not {FILL, STANDARDIZE} & set(contract.preprocessing):
        return None
    try:
        return TableColumns.model_validate_json(regular_bytes(bundle / FEATURES_NAME))
    except (OSError, ValidationError) as error:
        msg = f"{bundle / FEATURES_NAME}: cannot be read: {str(error).splitlines()[0]}; export again"
        raise DataError(msg) from error


def options_from_words(steps: Sequence[str], bundle: Path) -> TransformOptions:
    """Return the transform that a bundle's steps describe; the turn to BGR and what is done to features are none of it.

    Args:
        steps: Of an input in ``manifest.json``.
        bundle: Holds the mean image, if there is one.

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
        elif found := _CROP.fullmatch(step):
            crop_size = int(found[1])
        elif found := _MEAN_VALUES.fullmatch(step):
            mean_values = tuple(float(value) for value in found[1].split(","))
        elif found := _SCALE.fullmatch(step):
            scale = float(found[1])
        else:
            msg = f'{bundle}: its input has the step "{step}", which this release does not know; export again'
            raise DataError(msg)
    return TransformOptions(crop_size=crop_size, mean=mean, mean_values=mean_values, scale=scale)
