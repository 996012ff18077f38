"""Mean images: Caffe's ``mean.binaryproto``, read and write."""

from __future__ import annotations

from pathlib import Path

from caffe_import.errors import WeightsError
from caffe_import.file_access.whole_file import write_whole
from caffe_import.files.binary_file import read_message
from caffe_import.files.blob_proto import FloatArray, array_from_blob
from caffe_import.proto import caffe_pb2

_FILE_KIND = "a mean.binaryproto"


def read_mean(path: Path) -> FloatArray:
    """Return the mean image, float32 (C, H, W), channels as the data has them (BGR).

    Raises:
        WeightsError: The file is missing, damaged, or holds something other than one image.
    """
    path = Path(path)
    mean = array_from_blob(read_message(path, caffe_pb2.BlobProto(), file_kind=_FILE_KIND), where=str(path))
    if mean.ndim == 4 and mean.shape[0] == 1:
        mean = mean[0]
    if mean.ndim != 3 or mean.size == 0:
        msg = f"{path}: has shape {mean.shape}; one image (C, H, W) or (1, C, H, W) was expected"
        raise WeightsError(msg)
    return mean


def write_mean(path: Path, mean: FloatArray) -> None:
    """Write a mean image, float32 (C, H, W), with the legacy axes that compute_image_mean writes (num is 1).

    Raises:
        WeightsError: It has not three axes.
    """
    if mean.ndim != 3:
        msg = f"{path}: a mean image has shape (C, H, W), not {mean.shape}"
        raise WeightsError(msg)
    channels, height, width = mean.shape
    message = caffe_pb2.BlobProto(num=1, channels=channels, height=height, width=width)
    message.data.extend(mean.ravel().tolist())
    with write_whole(Path(path)) as temporary:
        temporary.write_bytes(message.SerializeToString())
