"""All readers by name."""

from __future__ import annotations

from tests.fuzz.corpus import caffe_files, pipeline, raw_data, server_calls, tls
from tests.fuzz.reader import Reader

READERS: dict[str, Reader] = {
    reader.name: reader for module in (caffe_files, raw_data, pipeline, server_calls, tls) for reader in module.READERS
}
