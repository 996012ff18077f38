"""Formats of raw data, declared once for command line, form and the registry of readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

TABLE_FORMATS: Final[Mapping[str, str]] = {
    "parquet": "Parquet file, or folder of part files: a table of features, or of images",
    "orc": "ORC file, or folder of part files: likewise",
    "avro": "Avro container file, or folder of such files: likewise",
    "json_lines": "text with a JSON object in each line, or folder of such files: likewise",
    "csv": "text with a header line of column names, or folder of such files: likewise; a list of images is image_list",
    "spark_table": "table:db.name, a table of the Spark session's catalog: likewise",
}
"""Tables, which Spark reads; ``deepspark_ops/ingest/sources/tables.py`` has the look of each format."""

SOURCE_FORMATS: Final[Mapping[str, str]] = {
    "caffe_lmdb": "folder with data.mdb, as Caffe's convert_imageset writes it",
    "caffe_leveldb": "folder with CURRENT and MANIFEST-*, as Caffe's tools write it by default",
    "cifar_binary": "CIFAR-10 or -100, binary version: folder with data_batch_*.bin or train.bin, or one .bin file",
    "hdf5": "HDF5 file with datasets 'data' and 'label', or Caffe's list of such files",
    "tfrecord": "TFRecord file of tf.train.Example (image/encoded, image/class/label, ...), or folder of such files",
    "sequence_file": "Hadoop SequenceFile, or folder of them: CaffeOnSpark's, DeepSpark's, or (id, Caffe's Datum)",
    **TABLE_FORMATS,
    "idx": "IDX images, as MNIST has them, the labels in a file beside them; gzipped or not",
    "class_folders": "folder of class folders, ROOT/cat/1.jpg, or ROOT/train/... and ROOT/test/...; also ARCHIVE::ROOT",
    "image_list": "text of 'path label' or 'path,label' lines, labels numbers or names; in a tar or zip ARCHIVE::LIST",
}
"""Name -> description in one line. ``auto`` tries the formats in this order. Each format has a file of its name in
``deepspark_ops/ingest/sources/``; the formats of tables are in ``tables.py`` there."""

if TYPE_CHECKING:
    SourceFormat = str
else:
    SourceFormat = Literal[("auto", *SOURCE_FORMATS)]
