"""``deepspark model`` and ``deepspark upgrade``: show, change and upgrade Caffe's files.

The readers of Caffe's files are imported when a command runs: they load h5py, protobuf and OpenCV.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepspark_ops.api.display.stage_display import StageDisplay
from deepspark_ops.command.reporting import print_text, print_view, reported_errors, write_json
from deepspark_ops.errors import ConfigError
from deepspark_ops.stores.store_path import data_path

if TYPE_CHECKING:
    from caffe_import.surgery.edit import LayerCopy

model = typer.Typer(help="Weights files: show, compare, edit (net surgery); and mean images.", no_args_is_help=True)

_LINE_IMAGES = 10_000
_File = Annotated[Path, typer.Argument(metavar="FILE", help=".caffemodel or .caffemodel.h5", show_default=False)]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON")]


@model.command("show")
@reported_errors()
def show(file: _File, *, as_json: _Json = False) -> None:
    """Show each blob of a weights file: shape, mean, deviation, range, zeros, and values that are not finite."""
    from caffe_import.surgery.blob_statistics import statistics
    from caffe_import.surgery.weights_message import read_weights
    from deepspark_ops.command.caffe_files_view import statistics_table

    blobs = statistics(read_weights(file))
    if as_json:
        write_json({"file": str(file), "blobs": [asdict(blob) for blob in blobs]})
        return
    print_view(statistics_table(blobs))
    n_values = sum(prod(blob.shape) for blob in blobs)
    print_text(f"{file}: {len({blob.layer for blob in blobs})} layers with {len(blobs)} blobs, {n_values:,} values")


@model.command("diff")
@reported_errors()
def diff(
    file: _File,
    other: Annotated[Path, typer.Argument(metavar="OTHER", help="The file to compare with", show_default=False)],
    *,
    as_json: _Json = False,
) -> None:
    """Show the blobs in which two weights files differ, and by how much."""
    from caffe_import.surgery.blob_statistics import differences
    from caffe_import.surgery.weights_message import read_weights
    from deepspark_ops.command.caffe_files_view import difference_table

    different_blobs = differences(read_weights(file), read_weights(other))
    if as_json:
        blobs = [asdict(blob) for blob in different_blobs]
        write_json({"files": [str(file), str(other)], "is_equal": not different_blobs, "blobs": blobs})
        return
    if not different_blobs:
        print_text("every blob is the same")
        return
    print_view(difference_table(different_blobs))
    print_text(f"{len(different_blobs)} {'blob differs' if len(different_blobs) == 1 else 'blobs differ'}")


@model.command("edit")
@reported_errors()
def edit(
    file: _File,
    output: Annotated[Path, typer.Option("--output", help="File to write; HDF5 if it ends in .h5", show_default=False)],
    rename: Annotated[
        list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Give a layer another name")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option("--drop", metavar="LAYER", help="Leave a layer out")] = None,
    copy: Annotated[
        list[str] | None,
        typer.Option("--copy", metavar="FILE:LAYER[=NAME]", help="Take a layer's blobs from another weights file"),
    ] = None,
) -> None:
    """Write a weights file with layers dropped, renamed and copied from other files, in this order.

    A net takes weights by the names of its layers: a renamed or dropped layer starts fresh in training. Each option may
    be given several times.
    """
    from caffe_import.surgery.edit import Edits, edited
    from caffe_import.surgery.weights_message import read_weights, write_weights

    edits = Edits(drop or (), dict(_pair(text, "--rename", "OLD=NEW") for text in rename or ()), _copies(copy or ()))
    if not (edits.drops or edits.renames or edits.copies):
        msg = "nothing to do; give --rename OLD=NEW, --drop LAYER or --copy FILE:LAYER"
        raise ConfigError(msg)
    net, log_lines = edited(read_weights(file), edits, where=str(file))
    write_weights(output, net)
    print_text("\n".join([*log_lines, f"weights={output}"]))


@model.command("mean")
@reported_errors()
def mean(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="Folder of an LMDB, a LevelDB or an ingested dataset, also in a store",
            show_default=False,
            parser=data_path,
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="mean.binaryproto to write", show_default=False)
    ] = None,
    split: Annotated[str, typer.Option("--split", help="Of a dataset: train, validation or test")] = "train",
    *,
    as_json: _Json = False,
) -> None:
    """Measure the mean of existing images: per channel, and with --output per pixel, for mean_file.

    The result equals Caffe's compute_image_mean. The lines of the channels fit into a net's transform_param.
    """
    from caffe_import.files.mean_file import write_mean
    from deepspark_ops.command.caffe_files_view import shape_text
    from deepspark_ops.ingest.images.measured_mean import measure_mean

    with StageDisplay("mean") as display:
        measured = measure_mean(source, split, _images_shown(display))
    if output is not None:
        write_mean(output, measured.image)
    if as_json:
        values = {"mean_values": measured.values, "output": output and str(output)}
        write_json({"n_images": measured.n_images, "shape": measured.image.shape, **values})
        return
    print_text(f"{measured.n_images:,} images of {shape_text(measured.image.shape)}")
    print_text("\n".join(f"mean_value: {value}" for value in measured.values))
    if output is not None:
        print_text(f"mean_file={output}")


def _images_shown(display: StageDisplay) -> Callable[[int, int], None]:
    """Return what moves a bar, and shows a line for each ``_LINE_IMAGES`` images, as Caffe's tool."""
    n_lines = 0

    def show(n_read: int, n_images: int) -> None:
        nonlocal n_lines
        display.count(n_read, n_images)
        if n_read // _LINE_IMAGES > n_lines:
            n_lines = n_read // _LINE_IMAGES
            display.line(logging.INFO, f"{n_read:,}/{n_images:,} images")

    return show


@reported_errors()
def upgrade(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Prototxt of a net or solver, or a weights file", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", help="File to write; may be FILE itself", show_default=False)],
) -> None:
    """Write an old net, solver or weights file (V0, V1, solver_type, input fields) in Caffe's current form.

    A text loses its comments.
    """
    from caffe_import.surgery.upgrade_file import upgrade_file

    upgraded = upgrade_file(file, output)
    steps = upgraded.steps or ("nothing to upgrade: it has the current form",)
    print_text("\n".join([*steps, f"{upgraded.kind}={output}"]))


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    key, mark, value = text.rpartition("=")
    if not (mark and key and value):
        msg = f"{option} {text}: allowed: {form}"
        raise ConfigError(msg)
    return key, value


def _copies(texts: Sequence[str]) -> list[LayerCopy]:
    from caffe_import.surgery.edit import LayerCopy

    copies = []
    for text in texts:
        path, mark, layers = text.rpartition(":")
        if not (mark and path and layers):
            msg = f"--copy {text}: allowed: FILE:LAYER, or FILE:LAYER=NAME for another name here"
            raise ConfigError(msg)
        layer, _, name = layers.partition("=")
        copies.append(LayerCopy(Path(path), layer, name or layer))
    return copies
