"""The lines of an image list: Caffe's ``path label``, or ``path,label``; labels are numbers or class names."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from caffe_import.data.image_source import BadLine, parse_image_list
from deepspark_ops.ingest.files.image_files import is_image_name
from deepspark_ops.ingest.files.table_files import SEPARATORS

_WHOLE_NUMBER = re.compile(r"[-+]?\d{1,18}")
PATH_WORDS = frozenset("path file filename file_name filepath image image_path name".split())
LABEL_WORDS = frozenset("label labels class class_name class_id category target y".split())
"""Usual names of the columns of paths and of labels; a first line of two such words is a header."""
_SHOWN = 200
_LOOKED_AT = 20


@dataclass(frozen=True)
class ListLines:
    """An image list as paths and labels.

    Attributes:
        paths: One per usable line.
        labels: Label of each path: all whole numbers, or all names of classes.
        are_names: Whether labels are names of classes.
        has_commas: Whether a comma separates, and no blank.
        splits: Split of each path; empty without a column of splits.
        bad: (number of the line counted from 1, its text, what is wrong) of every other line that is not blank.
    """

    paths: tuple[str, ...]
    labels: tuple[str, ...]
    are_names: bool
    has_commas: bool
    bad: tuple[tuple[int, str, str], ...]
    splits: tuple[str, ...] = ()


def split_lines(text: str) -> ListLines:
    r"""Split a list into paths and labels. All lines have the same separator and the same kind of label.

    Caffe's form has priority: lines that end in a blank and a whole number. Without lines of this form, the separator
    is a comma if every line has a comma, else the last blank. Labels are then whole numbers if any label is a whole
    number, else names.

    Example:
        >>> split_lines("a dir/1.jpg 3").paths
        ('a dir/1.jpg',)
        >>> split_lines("path,label\n1.jpg,cat\n2.jpg,dog\n").labels
        ('cat', 'dog')
        >>> split_lines("file,kind\n1.jpg,cat\n2.jpg,dog\n").labels
        ('cat', 'dog')
    """
    entries = parse_image_list(text)
    images = [entry for entry in entries if not isinstance(entry, BadLine)]
    bad = [entry for entry in entries if isinstance(entry, BadLine)]
    if images and not all(image.path.endswith(",") for image in images):
        return ListLines(
            paths=tuple(image.path for image in images),
            labels=tuple(str(image.label) for image in images),
            are_names=False,
            has_commas=False,
            bad=tuple((entry.number, entry.text[:_SHOWN], _why_bad(entry)) for entry in bad),
        )
    lines = [BadLine(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if lines and all("," in line.text for line in lines):
        return _of_fields(lines[1:] if _begins_with_header(lines) else lines, _comma_fields, has_commas=True)
    return _of_fields(lines, _blank_fields, has_commas=False)


def split_table(text: str, image: str, label: str, split: str | None = None) -> ListLines | None:
    r"""Return paths and labels of a CSV table with a header line, of any separator; None if a column is missing.

    The optional column ``split`` has the split of each line.

    Example:
        >>> split_table("id,path,label\n1,a.jpg,cat\n", "path", "label").labels
        ('cat',)
    """
    columns = [image, label] if split is None else [image, label, split]
    for separator in SEPARATORS:
        rows = csv.reader(text.splitlines(), skipinitialspace=True, delimiter=separator)
        header = next(rows, [])
        if set(columns) <= set(header):
            break
    else:
        return None
    column_indices = [header.index(name) for name in columns]
    lines: list[BadLine] = []
    fields: dict[str, tuple[str, ...] | None] = {}
    for row in rows:
        if any(field.strip() for field in row):
            line = BadLine(rows.line_num, ",".join(row))
            lines.append(line)
            values = [row[index].strip() if index < len(row) else "" for index in column_indices]
            fields[line.text] = tuple(values) if all(values[:2]) else None
    return _of_fields(lines, lambda line: fields[line], has_commas=True)


def table_columns(text: str) -> tuple[str, ...]:
    r"""Return the fields of the first line of a CSV table with more than two columns; else ().

    Example:
        >>> table_columns("id,path,label\n1,a.jpg,3\n")
        ('id', 'path', 'label')
        >>> table_columns("a,b.jpg,3\nc.jpg,3\n")
        ()
    """
    rows = [row for row in csv.reader(text.splitlines()[:100]) if row]
    widths = {len(row) for row in rows}
    return tuple(rows[0]) if len(widths) == 1 and min(widths) > 2 else ()


def _why_bad(line: BadLine) -> str:
    fields = _blank_fields(line.text)
    if fields is None:
        return f'line {line.number} is not "path label"'
    return f'line {line.number} is not "path label": "{fields[1]}" is no whole number, as labels of other lines are'


def _of_fields(
    lines: Sequence[BadLine], split: Callable[[str], tuple[str, ...] | None], *, has_commas: bool
) -> ListLines:
    line_fields = [(line, split(line.text)) for line in lines]
    are_names = not any(fields and _WHOLE_NUMBER.fullmatch(fields[1]) for _, fields in line_fields)
    paths, labels, bad = [], [], []
    splits: list[str] = []
    for line, fields in line_fields:
        if fields is None:
            bad.append((line.number, line.text[:_SHOWN], f'line {line.number} is not "path label"'))
        elif not are_names and not _WHOLE_NUMBER.fullmatch(fields[1]):
            bad.append((line.number, line.text[:_SHOWN], _why_bad(BadLine(line.number, " ".join(fields)))))
        else:
            paths.append(fields[0])
            labels.append(fields[1])
            splits += fields[2:]
    return ListLines(tuple(paths), tuple(labels), are_names, has_commas, tuple(bad), tuple(splits))


def _comma_fields(line: str) -> tuple[str, str] | None:
    row = next(csv.reader([line], skipinitialspace=True), [])
    if len(row) != 2:  # the last comma separates, like the last blank
        row = line.rsplit(",", 1)
    path, label = row[0].strip(), row[1].strip()
    return (path, label) if path and label and not is_image_name(label) else None


def _blank_fields(line: str) -> tuple[str, str] | None:
    parts = line.rsplit(None, 1)
    if len(parts) != 2 or is_image_name(parts[1]):  # an image's path that holds a blank, and no label
        return None
    return parts[0], parts[1]


def _begins_with_header(lines: Sequence[BadLine]) -> bool:
    """Return whether the first line is a header.

    A header has two usual column names, or a usual name for paths above lines of image names.
    """
    first, *later_fields = (_comma_fields(line.text) for line in lines[:_LOOKED_AT])
    if first is None or first[0].lower() not in PATH_WORDS:
        return False
    return first[1].lower() in LABEL_WORDS or (
        len(later_fields) > 0 and all(fields is not None and is_image_name(fields[0]) for fields in later_fields)
    )
