"""Samples of a bundle from the content of inputs, made by threads ahead of the net."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from caffe_import.file_access.regular_file import IMAGE_BYTES, regular_bytes
from deepspark_ops.config.commands.predict import RawImageConfig
from deepspark_ops.config.shared_options.batch_size import DEFAULT_BATCH_SIZE
from deepspark_ops.errors import ConfigError
from deepspark_ops.export.input_steps import FILL, options_from_words, table_of_input
from deepspark_ops.export.manifest import BundleManifest, InputContract
from deepspark_ops.ingest.images.pixels import PixelRecipe
from deepspark_ops.ingest.records import RecordError
from deepspark_ops.predict.record import Content, InputRecord, Values
from deepspark_ops.shards.preprocessing import PixelSteps
from deepspark_ops.shards.table_columns import TableColumns
from deepspark_ops.stores.store_path import StorePath

_OF_PAIRS: Final = (
    "; give each image of a pair as an input of its own, and compare the distance of the two vectors with the"
    " best_threshold of the evaluation"
)
Parts = tuple[Values, ...]
"""A sample: pixels (C, H, W), BGR, or numbers in the input's shape, for each of the bundle's inputs in order."""


@dataclass(frozen=True)
class Sample:
    """An input in the form of the bundle's samples.

    Attributes:
        id: Id of the input.
        values: Values for the bundle; None for an unusable input.
        error: Reason why the input is unusable; empty otherwise.
        remark: Step that no training sample had; empty without such a step.
    """

    id: str
    values: Parts | None
    error: str = ""
    remark: str = ""


@dataclass(frozen=True)
class SampleForm:
    """One input of a bundle, and the way from raw content to its samples. Safe to share between threads.

    Attributes:
        contract: The input; ``contract.images`` has the steps of the training images.
        recipe: Steps from an image to pixels.
        crop_size: Side of the square that the bundle cuts out of an image, pixels; 0 without a crop.
        table: Columns of the training table; None without a table.
        remarks: Differences from the training images, and unknown steps, for people.
    """

    contract: InputContract
    recipe: PixelRecipe
    crop_size: int = 0
    table: TableColumns | None = None
    remarks: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        contract: InputContract,
        config: RawImageConfig | None = None,
        *,
        crop_size: int = 0,
        table: TableColumns | None = None,
    ) -> SampleForm:
        """Return the form, with the steps of the training images.

        If the steps are unknown, an image of another size gets the bundle's size.

        Raises:
            ConfigError: The training images had another size than the options say.
        """
        if not contract.takes_images:
            return cls(contract, PixelRecipe(), crop_size, table)
        config = config or RawImageConfig.model_validate({})
        resize_height, resize_width, max_pixel = config.resize_height, config.resize_width, config.max_pixel
        size = (resize_height, resize_width)
        fixed = _training_size(contract)
        if resize_height and fixed is not None and size != fixed:
            msg = (
                f"resize_height={resize_height}, resize_width={resize_width}: the bundle takes {fixed[0]} x {fixed[1]}"
                f"{' pixels, out of which it cuts a square' if crop_size else ''}; leave both out"
            )
            raise ConfigError(msg)
        images, remarks = contract.images, []
        if images is None:
            steps = PixelSteps(
                gray=contract.channels == "gray",
                decode_color=True if contract.channels == "RGB" else None,
                max_pixel=max_pixel or 255,
                height=resize_height or (fixed[0] if fixed else 0),
                width=resize_width or (fixed[1] if fixed else 0),
            )
            remarks.append(_unknown(contract, steps))
        else:
            changes: dict[str, int] = {}
            if max_pixel is not None and max_pixel != images.max_pixel:
                remarks.append(f"max_pixel={max_pixel}: of the training images it was {images.max_pixel}")
                changes["max_pixel"] = max_pixel
            if resize_height and not images.height:
                remarks.append(f"images become {resize_height} x {resize_width}; the training images were not resized")
            if resize_height:
                changes |= {"height": resize_height, "width": resize_width}
            steps = images.model_copy(update=changes)
        return cls(contract, PixelRecipe(steps), crop_size, table, tuple(remarks))

    @property
    def takes_images(self) -> bool:
        """Whether samples are images, (C, H, W)."""
        return self.contract.takes_images

    @property
    def n_values(self) -> int | None:
        """Count of numbers of a sample; None for an image."""
        return None if self.takes_images else math.prod(self.contract.shape[1:])

    @property
    def may_miss(self) -> bool:
        """Whether a number may be missing (NaN); the bundle fills a missing number."""
        return FILL in self.contract.preprocessing

    @property
    def color(self) -> bool | None:
        """Decoding of a dataset's compressed images: None: channels of the file, True: BGR, False: gray."""
        if self.contract.images is not None and self.contract.images.encoded:
            return self.contract.images.read_color
        return False if self.contract.channels == "gray" else True if self.contract.channels == "RGB" else None

    def values(self, content: Content, *, is_stored: bool = False) -> tuple[Values, str]:
        """Return the values of a content for this input, and a remark if a training sample had other steps.

        A stored image has pixels if the steps of the training images are known; see ``InputRecord``.

        Raises:
            RecordError: The content is unusable.
            OSError: The file cannot be read.
        """
        if not self.takes_images:
            return self._numbers(content), ""
        if is_stored and self.contract.images is not None and isinstance(content, np.ndarray):
            return self._checked(content), ""
        raw = regular_bytes(content, max_bytes=IMAGE_BYTES) if isinstance(content, Path | StorePath) else content
        record = raw if isinstance(raw, bytes) else self._pixels(raw)
        image, remark = self._image(record)
        return self._checked(image), remark

    def _image(self, record: bytes | Values) -> tuple[Values, str]:
        """Return the pixels of a raw image, and a remark if the channels were converted."""
        images = self.contract.images
        if images is None:
            return self.recipe.apply(record), ""
        try:
            image = self.recipe.as_read(record, images)
        except RecordError as error:
            raise RecordError(self._range_error(error)) from error
        n_channels = self.contract.shape[3]
        if image.shape[0] == n_channels or n_channels not in (1, 3):
            return self._of_trained_type(image), ""
        remark = f"{image.shape[0]} channels became {n_channels}; every training image had {n_channels}"
        steps = self.recipe.steps.model_copy(update={"gray": n_channels == 1, "decode_color": True})
        converting = PixelRecipe(steps)
        return self._of_trained_type(converting.as_read(record, images)), remark

    def _of_trained_type(self, image: Values) -> Values:
        images = self.contract.images
        if images is not None and images.dtype is not None and image.dtype != images.dtype:
            msg = f"pixels are {image.dtype}, those of the training images were {images.dtype}"
            raise RecordError(msg)
        return image

    def _range_error(self, error: RecordError) -> str:
        """Return an error's text; the text for a value above ``max_pixel`` names the option."""
        if "exceeds max_pixel" not in str(error):
            return str(error)
        return (
            f"{error}, the largest of the training images; for images of another range give their largest value as"
            " max_pixel"
        )

    def _checked(self, image: Values) -> Values:
        """Return the pixels if the bundle takes the pixels.

        Raises:
            RecordError: The bundle takes other channels, sizes or types.
        """
        contract = self.contract
        n_channels = contract.shape[3]
        if image.shape[0] != n_channels:
            is_pair = image.shape[0] == 2 * n_channels
            remedy = _OF_PAIRS if is_pair else ""
            msg = f"{image.shape[0]} channels, the bundle takes {n_channels}{remedy}"
            raise RecordError(msg)
        fixed = _training_size(contract)
        if fixed is not None and image.shape[1:] != fixed:
            msg = (
                f"{image.shape[1]} x {image.shape[2]} pixels, the training images had {fixed[0]} x {fixed[1]} and were"
                f" not resized; resize_height={fixed[0]} and resize_width={fixed[1]} resize this one all the same"
            )
            raise RecordError(msg)
        if min(image.shape[1:]) < self.crop_size:
            msg = f"{image.shape[1]} x {image.shape[2]} pixels, the bundle cuts {self.crop_size} x {self.crop_size} out"
            raise RecordError(msg)
        if contract.dtype == "uint8" and image.dtype != np.uint8:
            msg = f"pixels are {image.dtype}, the bundle takes uint8"
            raise RecordError(msg)
        return image

    def _pixels(self, values: Values) -> Values:
        """Return raw pixels unchanged, and the numbers of a row as a gray image."""
        if values.ndim == 3:
            return values
        channels, height, width = (self.contract.shape[axis] for axis in (3, 1, 2))
        if channels != 1 or min(height, width) < 1 or values.size != height * width:
            msg = f"{values.size} numbers, the bundle takes images of shape {self.contract.shape[1:]}"
            raise RecordError(msg)
        image = values.reshape(1, height, width)
        if self._raw_dtype() != "uint8":
            return image
        if not ((image >= 0) & (image <= 255) & (image == np.rint(image))).all():
            msg = "numbers that are no pixels, whole and from 0 to 255"
            raise RecordError(msg)
        return image.astype(np.uint8)

    def _raw_dtype(self) -> str:
        images = self.contract.images
        return self.contract.dtype if images is None or images.dtype is None else images.dtype

    def _numbers(self, content: Content) -> Values:
        if isinstance(content, Path | StorePath | bytes):
            msg = f"an image, the bundle takes {self.n_values} numbers"
            raise RecordError(msg)
        if content.size != self.n_values:
            msg = f"{content.size} numbers, the bundle takes {self.n_values}"
            raise RecordError(msg)
        values = content.reshape(self.contract.shape[1:])
        if problem := self.unusable_number(values):
            raise RecordError(problem)
        return values

    def unusable_pixels(self, pixels: Values) -> str:
        """Return why the recorded steps of ingestion cannot give stored pixels, (H, W, C); empty if the steps can."""
        images = self.contract.images
        if images is None:
            return ""
        trained_size = _training_size(self.contract)
        if trained_size is not None and pixels.shape[:2] != trained_size:
            height, width = pixels.shape[:2]
            return (
                f"found {height} x {width} pixels, the training samples had {trained_size[0]} x {trained_size[1]};"
                " lists are pixels after ingestion's steps, an image file gets the steps here"
            )
        if images.max_pixel == 255 or images.height or images.encoded or pixels.dtype != np.uint8:
            return ""
        raw_levels = np.arange(images.max_pixel + 1, dtype=np.uint8).reshape(1, 1, -1)
        is_level = np.isin(pixels, PixelRecipe(PixelSteps(max_pixel=images.max_pixel)).apply(raw_levels))
        if is_level.all():
            return ""
        return (
            f"found pixel {pixels[~is_level][0]}, which scaling {images.max_pixel} to 255 cannot give; lists are pixels"
            f" after ingestion's steps: scale them, or send an image file with values up to {images.max_pixel}"
        )

    def unusable_number(self, values: Values) -> str:
        """Return the first unusable number of a sample with the reason; empty if all numbers are usable.

        NaN is a missing number; an infinite number is never usable.
        """
        is_bad = np.isinf(values) if self.may_miss else ~np.isfinite(values)
        if not is_bad.any():
            return ""
        flat = values.reshape(-1)
        at = int(is_bad.argmax())
        name = f"number {at}" if self.table is None else f"{self.table.feature_names()[at]} (number {at})"
        if np.isnan(flat[at]):
            return f"{name} is missing, and the bundle does not fill missing numbers"
        return f"{name} is not finite in float32"


def _training_size(contract: InputContract) -> tuple[int, int] | None:
    """Return (rows, columns) of every training image before the crop; None if the sizes may differ."""
    height, width = contract.shape[1:3]
    if height > 0:
        return height, width
    shape = None if contract.images is None else contract.images.sample_shape
    return None if shape is None else shape[1:]


def _unknown(contract: InputContract, steps: PixelSteps) -> str:
    size = f"images become {steps.height} x {steps.width}" if steps.height else "images keep their size"
    return (
        f'input "{contract.name}": the bundle does not say what was done to its training images; {size}, and'
        f" {steps.max_pixel} is taken for the largest pixel; resize_height, resize_width and max_pixel say otherwise"
    )


@dataclass(frozen=True)
class BundleForm:
    """The form of a bundle's samples. Safe to share between threads.

    Attributes:
        inputs: Form of each input, in the bundle's order; at least one input.
    """

    inputs: tuple[SampleForm, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(form.contract.name for form in self.inputs)

    @property
    def remarks(self) -> tuple[str, ...]:
        """All differences from the training images' steps, and unknown steps, for people."""
        return tuple(remark for form in self.inputs for remark in form.remarks)

    def only_input(self, bundle: Path) -> SampleForm:
        """Return the form of the only input.

        Raises:
            ConfigError: The bundle has several inputs; the source gives a single value per row.
        """
        if len(self.inputs) != 1:
            msg = (
                f"bundle={bundle}: takes {len(self.inputs)} inputs ({', '.join(self.names)}); only a table (Parquet,"
                " CSV, Spark) can give them, a column for each; input_columns says which, e.g."
                f" {self.names[0]}=COLUMN,{self.names[1]}=COLUMN"
            )
            raise ConfigError(msg)
        return self.inputs[0]

    def sample(self, record: InputRecord) -> Sample:
        """Return the record as a sample; the sample of an unusable record has an error."""
        if record.content is None:
            return Sample(record.id, None, record.error)
        several = isinstance(record.content, Mapping)
        first = self.inputs[0].contract.name
        contents = record.content if isinstance(record.content, Mapping) else {first: record.content}
        parts: list[Values] = []
        remarks: list[str] = []
        for form in self.inputs:
            name = form.contract.name
            where = f'input "{name}": ' if several else ""
            try:
                if (content := contents.get(name)) is None:
                    return Sample(record.id, None, f'input "{name}" is missing')
                values, remark = form.values(content, is_stored=record.is_stored)
                parts.append(values)
                remarks += [f"{where}{remark}"] if remark else []
            except RecordError as error:
                return Sample(record.id, None, f"{where}{error}")
            except OSError as error:
                return Sample(record.id, None, f"{where}{error.strerror or error}: {error.filename or record.id}")
        return Sample(record.id, tuple(parts), remark="; ".join(remarks))


def form_of_config(config: RawImageConfig, manifest: BundleManifest, bundle: Path) -> BundleForm:
    """Return the form of a bundle's samples, with a config's options.

    Raises:
        ConfigError: The training images had another size than the options say.
        DataError: The preprocessing has a step that this release does not know.
    """
    return BundleForm(
        tuple(
            SampleForm.of(
                contract,
                config,
                crop_size=options_from_words(contract.preprocessing, bundle).crop_size,
                table=table_of_input(contract, bundle),
            )
            for contract in manifest.inputs
        )
    )


def chunk_size(manifest: BundleManifest, batch_size: int | None) -> int:
    """Return the number of samples of a call of a bundle: the option, the net's only batch, or the default.

    Raises:
        ConfigError: The net takes another batch only.
    """
    unit = manifest.unit_batch
    if unit == 1:
        return batch_size or DEFAULT_BATCH_SIZE
    if batch_size not in (None, unit):
        msg = (
            f"batch_size={batch_size}: the bundle's net computes {unit} samples together, in their order, and no other"
            " number; leave batch_size out"
        )
        raise ConfigError(msg)
    return unit


def sample_chunks(
    records: Iterable[InputRecord], sample_of: Callable[[InputRecord], Sample], *, size: int, n_threads: int
) -> Iterator[list[Sample]]:
    """Yield samples in the order of the records, ``size`` at a time; threads make the next chunk ahead.

    The calling thread reads records, threads make samples: at most two chunks are held.
    """
    unread = iter(records)
    with ThreadPoolExecutor(n_threads) as pool:

        def begin() -> list[Future[list[Sample]]]:
            # A task for each record would take as long as a small record.
            records = list(islice(unread, size))
            pieces = [records[piece::n_threads] for piece in range(min(n_threads, len(records)))]
            return [pool.submit(lambda piece: [sample_of(record) for record in piece], piece) for piece in pieces]

        ahead = begin()
        while ahead:
            now, ahead = ahead, begin()
            pieces = [piece.result() for piece in now]
            yield [pieces[row % len(pieces)][row // len(pieces)] for row in range(sum(map(len, pieces)))]
