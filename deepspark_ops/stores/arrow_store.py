"""Object stores by pyarrow's file systems: S3, stores with S3's protocol, Google Cloud Storage.

Credentials come from the environment and the stores' configuration files; no option holds a credential.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from caffe_import.extras import require
from deepspark_ops.stores.store import Entry

ARROW_SCHEMES: Final = ("s3", "gs")
_PIECE_BYTES: Final = 2**24
_CONNECTIONS: Final = 4
"""Pieces of an object that are fetched at a time: a connection to S3 gives a fraction of a network's rate."""
_CONNECT_TIMEOUT_S: Final = 10
_REQUEST_TIMEOUT_S: Final = 60
_TRIES: Final = 4
_VARIABLES: Final = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "GOOGLE_APPLICATION_CREDENTIALS",
)  # fmt: skip
"""The environment that a file system is made with. Tasks of one process may have different connections."""


def filesystem_of(scheme: str, bucket: str) -> Any:
    """Return pyarrow's file system of a bucket, for this process.

    Raises:
        MissingExtra: pyarrow is not installed.
        OSError: The bucket's region cannot be determined.
    """
    return _filesystem(scheme, bucket if scheme == "s3" else "", os.getpid(), *map(os.environ.get, _VARIABLES))


@lru_cache(maxsize=64)
def _filesystem(scheme: str, bucket: str, _process: int, *_variables: str | None) -> Any:
    require("pyarrow", part=f"{scheme}://")
    from pyarrow import fs

    if scheme == "gs":
        return fs.GcsFileSystem()
    endpoint = endpoint_of(os.environ)
    options: dict[str, Any] = {} if endpoint is None else {"endpoint_override": endpoint}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None and endpoint is None:
        with suppress(OSError):  # the bucket's owner may hide the region; the SDK then chooses
            region = fs.resolve_s3_region(bucket)
    if region is not None:
        options["region"] = region
    return fs.S3FileSystem(
        **options,
        connect_timeout=_CONNECT_TIMEOUT_S,
        request_timeout=_REQUEST_TIMEOUT_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
    )


def endpoint_of(environment: Mapping[str, str]) -> str | None:
    """Return the address of an S3 other than Amazon's, from the variables of AWS's tools; pyarrow ignores both names.

    Example:
        >>> endpoint_of({"AWS_ENDPOINT_URL": "http://minio:9000"})
        'http://minio:9000'
    """
    return environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or None


@dataclass(frozen=True)
class ArrowStore:
    """See ``Store``.

    Attributes:
        scheme: A scheme of ``ARROW_SCHEMES``.
    """

    scheme: str

    def entry(self, key: str) -> Entry | None:
        """See ``Store``."""
        info = self._of(key).get_file_info(key)
        return None if info.type.name == "NotFound" else _entry(info)

    def entries(self, key: str, *, is_deep: bool) -> list[Entry]:
        """See ``Store``."""
        from pyarrow.fs import FileSelector

        entries = (_entry(info) for info in self._of(key).get_file_info(FileSelector(key, recursive=is_deep)))
        return [entry for entry in entries if not (is_deep and entry.is_folder)]

    def opened(self, key: str) -> BinaryIO:
        """See ``Store``."""
        return cast(BinaryIO, self._of(key).open_input_file(key))

    def version(self, key: str) -> str:
        """See ``Store``."""
        with self._of(key).open_input_file(key) as stream:
            tag = (stream.metadata() or {}).get("ETag")
            if tag:
                return f"{stream.size()} {tag.decode('ascii', 'replace')}"
        return _entry(self._of(key).get_file_info(key)).stamp

    def fetch(self, key: str, target: Path) -> None:
        """See ``Store``."""
        with self._of(key).open_input_file(key) as stream, target.open("r+b") as local:
            n_bytes = stream.size()

            def piece(at: int) -> None:
                content = stream.read_at(min(_PIECE_BYTES, n_bytes - at), at)
                os.pwrite(local.fileno(), content, at)

            with ThreadPoolExecutor(max_workers=_CONNECTIONS) as pool:
                for fetched_piece in [pool.submit(piece, at) for at in range(0, n_bytes, _PIECE_BYTES)]:
                    fetched_piece.result()
            local.truncate(n_bytes)

    def put(self, source: Path, key: str) -> None:
        """See ``Store``."""
        filesystem = self._of(key)
        try:
            # By default pyarrow compresses the content of a name that ends in .gz.
            with source.open("rb") as local, filesystem.open_output_stream(key, compression=None) as stream:
                while piece := local.read(_PIECE_BYTES):
                    stream.write(piece)
        except BaseException:
            # The stream's close has made an object of the written part.
            with suppress(OSError):
                filesystem.delete_file(key)
            raise

    def remove(self, key: str) -> None:
        """See ``Store``."""
        with suppress(FileNotFoundError):
            self._of(key).delete_file(key)

    def _of(self, key: str) -> Any:
        return filesystem_of(self.scheme, key.partition("/")[0])


def _entry(info: Any) -> Entry:
    is_folder = info.type.name == "Directory"
    return Entry(info.path.rstrip("/"), 0 if is_folder else info.size, info.mtime_ns or 0, is_folder)
