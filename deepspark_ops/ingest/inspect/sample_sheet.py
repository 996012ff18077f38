"""Samples of each class as a page or a picture, to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import cv2
import numpy as np

from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.ingest.contact_sheet import class_strips
from deepspark_ops.ingest.inspect.facts import read_splits
from deepspark_ops.page_templates import template_environment
from deepspark_ops.run_paths import DatasetPaths, write_text_whole, write_whole
from deepspark_ops.shards.class_name import class_name
from deepspark_ops.shards.thumbnail import Picture, encoded

_NAME_PIXELS: Final = 160
_GAP: Final = 6


def write_sample_sheet(dataset: Path, split: str, output: Path, *, samples: int, pixels: int) -> int:
    """Write the first samples of each class of a split, ``.html`` or ``.png``; return how many classes are shown.

    Raises:
        ConfigError: Another ending, or there is no such split.
        DataError: The dataset is damaged, or its samples are no pictures.
    """
    if output.suffix not in (".html", ".png"):
        msg = f"output={output}: allowed: a name that ends in .html or .png"
        raise ConfigError(msg)
    manifests = read_splits(dataset)
    if split not in manifests:
        msg = f"split={split}: {dataset} has {', '.join(manifests)}"
        raise ConfigError(msg)
    strips = class_strips(DatasetPaths(dataset).split(split), samples=samples, pixels=pixels)
    if not strips:
        msg = f"{dataset}: no samples to show: the dataset has no pictures"
        raise DataError(msg)
    rows = [
        (class_name(manifests[split].class_names, label), manifests[split].label_histogram[label], strips[label])
        for label in strips
    ]
    if output.suffix == ".html":
        page = template_environment("deepspark_ops.ingest.inspect").get_template("samples.html.jinja")
        pictures = [(name, count, encoded(strip).data_uri()) for name, count, strip in rows]
        write_text_whole(output, page.render(dataset=str(dataset), split=split, rows=pictures))
    else:
        with write_whole(output) as temporary:
            temporary.write_bytes(encoded(_as_one([(name, strip) for name, _, strip in rows])).content)
    return len(rows)


def _as_one(rows: list[tuple[str, Picture]]) -> Picture:
    """Return the strips below each other, each behind its class's name, (H, W, 3) BGR."""
    width = _NAME_PIXELS + max(strip.shape[1] for _, strip in rows)
    parts = []
    for name, strip in rows:
        row = np.full((max(strip.shape[0], 20) + _GAP, width, 3), 255, np.uint8)
        colours = strip if strip.ndim == 3 else cv2.cvtColor(strip, cv2.COLOR_GRAY2BGR)
        row[: strip.shape[0], _NAME_PIXELS : _NAME_PIXELS + strip.shape[1]] = colours
        # OpenCV's letters are those of ASCII.
        text = name.encode("ascii", "replace").decode()[:18]
        cv2.putText(row, text, (4, 15), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (40, 32, 29), 1, cv2.LINE_AA)
        parts.append(row)
    return np.concatenate(parts)
