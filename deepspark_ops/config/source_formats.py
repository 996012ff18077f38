"""The formats of raw data, declared once: command line, form and the registry of readers are made from this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

SOURCE_FORMATS: Final[Mapping[str, str]] = {
    "caffe_lmdb": "folder with data.mdb, as Caffe's convert_imageset writes it",
    "caffe_leveldb": "folder with CURRENT and MANIFEST-*, as Caffe's tools write it by default",
    "cifar_binary": "CIFAR-10 or -100, binary version: folder with data_batch_*.bin or train.bin, or one .bin file",
    "hdf5": "HDF5 file with datasets 'data' and 'label', or Caffe's list of such files",
    "tfrecord": "TFRecord file of tf.train.Example (image/encoded, image/class/label, ...), or folder of such files",
    "sequence_file": "Hadoop SequenceFile, or folder of them: CaffeOnSpark's, DeepSpark's, or (id, Caffe's Datum)",
    "idx": "IDX images, as MNIST has them, the labels in a file beside them; gzipped or not",
    "class_folders": "folder of class folders, ROOT/cat/1.jpg, or ROOT/train/... and ROOT/test/...; also ARCHIVE::ROOT",
    "image_list": "text of 'path label' or 'path,label' lines, labels numbers or names; in a tar or zip ARCHIVE::LIST",
}
"""Name -> what it is and what is read, one line. ``auto`` asks the formats in this order; each has a file of its name
in ``deepspark_ops/ingest/sources/``."""

if TYPE_CHECKING:
    SourceFormat = str
else:
    SourceFormat = Literal[("auto", *SOURCE_FORMATS)]
