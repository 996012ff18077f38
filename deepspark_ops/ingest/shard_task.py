"""One task: read the records of one shard, make pixels of them, write the shard, report what happened as a value.

No Spark here: the job maps ``run_shard_task`` over the tasks. A task does not raise for what a user can mend: Spark
would try again, then bury the message in a Java stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from caffe_import.errors import CaffeImportError
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.ingest.files.image_header import exif_orientation, has_alpha, more_than_8_bits, usual_frame
from deepspark_ops.ingest.findings import Finding, Findings
from deepspark_ops.ingest.images.decoder_messages import DecoderMessages, decoder_messages
from deepspark_ops.ingest.images.pixels import PixelRecipe
from deepspark_ops.ingest.images.record_blocks import RecordBlock, RecordBlocks
from deepspark_ops.ingest.images.sample_notes import NotedSamples
from deepspark_ops.ingest.images.waiting_samples import StoredSample, WaitingSamples
from deepspark_ops.ingest.records import Positions, ReadRecord, RecordError, RecordReader, Rejection
from deepspark_ops.shards.files.full_disk import is_no_room, write_trouble
from deepspark_ops.shards.files.hdf5_shard import write_hdf5_shard
from deepspark_ops.shards.files.lmdb_shard import sample_key, write_lmdb_blocks
from deepspark_ops.shards.files.shard_records import ShardRecords, records_path, write_records
from deepspark_ops.shards.manifest import ShardFormat, SplitName, sha256_of_file
from deepspark_ops.shards.preprocessing import joint_range
from deepspark_ops.stores.store_path import DataPath
from deepspark_ops.stores.writing import local_output


@dataclass(frozen=True)
class NewShard:
    """A shard that a task writes.

    Attributes:
        split: Split of the shard.
        number: Number among the shards of the split.
        path: File or folder of the shard.
    """

    split: SplitName
    number: int
    path: DataPath


@dataclass(frozen=True)
class ShardTask(NewShard):
    """The images of a shard.

    Attributes:
        shard_format: LMDB or HDF5.
        encoded: Keep images compressed (LMDB).
        first: Number of the shard's first sample in the split; keys count on from it.
        positions: Of the records in their source.
        names: One per record.
        labels: One per record.
        reader: Its record ``i`` belongs to ``positions[i]``.
        recipe: From record to pixels.
        shape: (C, H, W) that every sample must have.
        dtype: ``uint8`` or ``float32``, likewise.
        n_classes: Length of the label counts.
        repeats: (n,) int32, how often each record was taken before, by balancing; None: never.
        stamps: (n,) uint64, of ``FolderReader``; None where records have none.
        groups: (n,) uint64, hash of each record's group; None without groups.
    """

    shard_format: ShardFormat
    encoded: bool
    first: int
    positions: Positions
    names: tuple[str, ...]
    labels: Positions
    reader: RecordReader
    recipe: PixelRecipe
    shape: tuple[int, int, int]
    dtype: str
    n_classes: int
    repeats: npt.NDArray[np.int32] | None = None
    stamps: npt.NDArray[np.uint64] | None = None
    groups: npt.NDArray[np.uint64] | None = None

    @property
    def n_records(self) -> int:
        """Number of records."""
        return len(self.positions)

    def sample(self, share: float) -> ShardTask:
        """Return the task with a share of its records, evenly spaced; at least one record."""
        n_records = max(1, round(share * self.n_records))
        return self.subset(np.unique(np.linspace(0, self.n_records - 1, n_records).astype(np.int64)))

    def subset(self, rows: Positions) -> ShardTask:
        """Return the task with some of its records."""
        return replace(
            self,
            positions=self.positions[rows],
            names=tuple(self.names[row] for row in rows.tolist()),
            labels=self.labels[rows],
            reader=self.reader.subset(rows),
            repeats=None if self.repeats is None else self.repeats[rows],
            stamps=None if self.stamps is None else self.stamps[rows],
            groups=None if self.groups is None else self.groups[rows],
        )


@dataclass
class ShardResult:
    """The result of a task, of images or of a table's rows.

    Attributes:
        task_number: ``ShardTask.number``.
        split: ``ShardTask.split``.
        n_samples: Written; 0 means that no shard was written.
        n_bytes: Of the shard's file.
        sha256: Of the shard's file.
        label_counts: (n_classes,) int64.
        rejected: Images left out; none of a table, whose rows are checked before.
        written_positions: (n_samples,) position in the source of each image written; empty for a table.
        findings: Warnings and notes on images; none of a table.
        records_sha256: Of the file beside the shard with facts of the shard's records or rows.
        error: Message for the user if the shard could not be written, else None.
    """

    task_number: int
    split: SplitName
    label_counts: npt.NDArray[np.int64]
    n_samples: int = 0
    n_bytes: int = 0
    sha256: str = ""
    rejected: list[Rejection] = field(default_factory=list)
    written_positions: Positions = field(default_factory=lambda: np.zeros(0, np.int64))
    findings: Findings = field(default_factory=Findings)
    records_sha256: str = ""
    error: str | None = None


_JPEG_MAGIC = b"\xff\xd8"
_OPENCV_ERROR = 2
"""cv2.utils.logging.LOG_LEVEL_ERROR: no warnings."""


def run_shard_task(task: ShardTask) -> ShardResult:
    """Write the shard of one task; a mistake of the user's comes back in ``error``."""
    result = ShardResult(task.number, task.split, np.zeros(task.n_classes, np.int64))
    # Tasks fill the cores already, and a damaged image is reported by us.
    cv2.setNumThreads(1)
    set_log_level = cv2.setLogLevel if hasattr(cv2, "setLogLevel") else cv2.utils.logging.setLogLevel  # 4.12, 4.13
    set_log_level(_OPENCV_ERROR)
    with errors_in(result, task.path), task.reader.opened() as read, decoder_messages() as messages:
        noted = NotedSamples(task.positions)
        waiting = WaitingSamples(task.shape, task.dtype, as_datums=task.shard_format == "lmdb")
        with local_output(task.path) as path:
            _write(task, path, result, _samples(task, read, result, messages, noted, waiting))
        if result.n_samples:
            result.records_sha256 = _keep_records(task, result, noted, waiting)
    return result


@contextmanager
def errors_in(result: ShardResult, shard: DataPath) -> Iterator[None]:
    """Put a user's mistake, a file that cannot be read or a full disk into the result of the shard's task."""
    try:
        yield
    except (DeepSparkError, CaffeImportError) as error:
        result.error = str(error)
    except OSError as error:
        is_read = error.filename is not None and not is_no_room(error)
        result.error = f"{error.filename}: {error.strerror or error}" if is_read else write_trouble(shard, error)


def _keep_records(task: ShardTask, result: ShardResult, noted: NotedSamples, waiting: WaitingSamples) -> str:
    """Write the facts of the shard's records; return the file's SHA-256."""
    rows = np.array(noted.numbers, np.int64)
    named = [item for item in result.findings.named if item.position is not None]
    at = {position: row for row, position in enumerate(task.positions[rows].tolist())} if named else {}
    path = records_path(task.path)
    write_records(
        path,
        ShardRecords(
            names=tuple(task.names[number] for number in noted.numbers),
            labels=task.labels[rows],
            stamps=np.zeros(len(rows), np.uint64) if task.stamps is None else task.stamps[rows],
            digests=np.array(noted.digests, np.uint64),
            repeats=np.zeros(len(rows), np.int32) if task.repeats is None else task.repeats[rows],
            sums=waiting.sums(),
            pixel_range=joint_range([waiting.pixel_range]),
            looks=noted.looks(),
            findings=tuple((item.kind, at[item.position], item.text) for item in named),
            counts=result.findings.counts,
            groups=None if task.groups is None else task.groups[rows],
        ),
    )
    return sha256_of_file(path)


def _write(task: ShardTask, path: Path, result: ShardResult, samples: Iterator[Iterable[StoredSample]]) -> None:
    if task.shard_format == "hdf5":
        rows = ((image, label) for block in samples for _, label, image in block)
        result.n_samples = write_hdf5_shard(path, rows, task.shape)
        data = path
    else:
        first, names = task.first, task.names
        blocks = ([(sample_key(first + i, names[i]), datum) for i, _, datum in block] for block in samples)
        result.n_samples = write_lmdb_blocks(path, blocks)
        data = path / "data.mdb"
    if result.n_samples:
        result.n_bytes = data.stat().st_size
        result.sha256 = sha256_of_file(data)


def _samples(
    task: ShardTask,
    read: ReadRecord,
    result: ShardResult,
    messages: DecoderMessages,
    noted: NotedSamples,
    waiting: WaitingSamples,
) -> Iterator[Iterable[StoredSample]]:
    """Yield every usable record, some at a time; count as they pass.

    Small images come 25,000 a second, so that what is done for each one takes as long as decoding it does.
    """
    labels = task.labels.tolist()

    def reject(number: int, error: RecordError) -> None:
        result.rejected.append(Rejection(int(task.positions[number]), task.names[number], labels[number], str(error)))

    blocks = RecordBlocks(read, task.recipe, messages, task.shape, task.dtype, task.encoded, reject)
    for block in blocks.of(len(labels), waiting.most):
        if block.are_pictures:
            _find(task, block, result.findings)
        noted.note(block)
        if waiting.are_pictures != block.are_pictures or len(block.numbers) > waiting.room:
            yield waiting.hand_out()
        waiting.add(block, [labels[i] for i in block.numbers])
        del block  # its memory, still in the caches, is the next one's
        if not waiting.room:  # at once, while a large image is still in the processor's caches
            yield waiting.hand_out()
    yield waiting.hand_out()
    numbers = np.array(noted.numbers, np.int64)
    result.written_positions = task.positions[numbers]
    result.label_counts = np.bincount(task.labels[numbers], minlength=task.n_classes)


def _find(task: ShardTask, block: RecordBlock, findings: Findings) -> None:
    """Add what there is to say of compressed records."""
    for number, record in zip(block.numbers, block.records, strict=True):
        if usual_frame(record) is None or block.complaint:
            for kind, text in _findings(task, record, block.complaint):
                findings.add(Finding(kind, task.names[number], text, int(task.positions[number])))


def _findings(task: ShardTask, record: bytes, complaint: str) -> list[tuple[str, str]]:
    findings = [("damaged_image", f"decoder: {complaint}")] if complaint else []
    is_converted = task.recipe.steps.gray or task.recipe.steps.decode_color is not None
    if record.startswith(_JPEG_MAGIC):
        if (orientation := exif_orientation(record)) != 1:
            kind = "orientation_applied" if is_converted else "orientation_ignored"
            findings.append((kind, f"EXIF orientation {orientation}"))
    elif is_converted:
        if bits := more_than_8_bits(record):
            findings.append(("reduced_to_8_bits", f"{bits} bits a channel"))
        if has_alpha(record):
            findings.append(("alpha_dropped", "pixels have their colour without transparency"))
    return findings
