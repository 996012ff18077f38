"""Hadoop's file systems (hdfs, viewfs, s3a, Azure's), read and written by the Hadoop jars of Spark.

A process starts a Java machine on the first use, and speaks to the machine by py4j; the machine ends with the process.
No Spark application starts. Settings are Hadoop's: ``core-site.xml`` in the folder of HADOOP_CONF_DIR.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any, BinaryIO, Final

from caffe_import.extras import require
from deepspark_ops.errors import ConfigError
from deepspark_ops.stores.store import Entry

HADOOP_SCHEMES: Final = ("hdfs", "viewfs", "s3a", "abfs", "abfss")
_JARS: Final = {
    "s3a": "hadoop-aws and the AWS SDK's bundle; without them s3:// reads the same by pyarrow",
    "abfs": "hadoop-azure",
    "abfss": "hadoop-azure",
}
"""Jars that Spark does not have."""
_COPY: Final = "deepspark-hadoop-"
_TEMPORARY: Final = ".deepspark.tmp"
_ABANDONED_S: Final = 86_400.0
"""Age of a temporary file that no process writes any more."""


@dataclass(frozen=True)
class HadoopStore:
    """See ``Store``; a key is ``host:port/path``.

    Attributes:
        scheme: A scheme of ``HADOOP_SCHEMES``.
    """

    scheme: str

    def entry(self, key: str) -> Entry | None:
        """See ``Store``."""
        with self._opened(key) as (system, path):
            return _entry(key, system.getFileStatus(path)) if system.exists(path) else None

    def entries(self, key: str, *, is_deep: bool) -> list[Entry]:
        """See ``Store``."""
        with self._opened(key) as (system, path):
            if not is_deep:
                return [_entry(f"{key}/{status.getPath().getName()}", status) for status in system.listStatus(path)]
            start = len(path.toUri().getPath().rstrip("/")) + 1
            entries, files = [], system.listFiles(path, True)
            while files.hasNext():
                status = files.next()
                entries.append(_entry(f"{key}/{status.getPath().toUri().getPath()[start:]}", status))
            return entries

    def opened(self, key: str) -> BinaryIO:
        """See ``Store``: a copy without a name. The lock shows other processes that this process is alive."""
        _remove_copies_of_killed(os.getpid())
        handle, name = tempfile.mkstemp(prefix=_COPY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            self.fetch(key, Path(name))
            return open(name, "rb", buffering=0)
        finally:
            os.unlink(name)
            os.close(handle)

    def version(self, key: str) -> str:
        """See ``Store``."""
        with self._opened(key) as (system, path):
            return _entry(key, system.getFileStatus(path)).stamp

    def fetch(self, key: str, target: Path) -> None:
        """See ``Store``."""
        with self._opened(key) as (system, path):
            # The raw local file system writes no checksum file.
            system.copyToLocalFile(False, path, _path(f"file://{target.absolute()}"), True)

    def put(self, source: Path, key: str) -> None:
        """See ``Store``."""
        folder, _, name = key.rpartition("/")
        with suppress(OSError):  # a folder that others own, say: the write itself matters
            _remove_abandoned(self, folder)
        with self._opened(f"{folder}/.{name}{_TEMPORARY}") as (system, temporary), self._opened(key) as (_, path):
            system.copyFromLocalFile(False, True, _path(f"file://{source.absolute()}"), temporary)
            system.delete(path, False)
            if not system.rename(temporary, path):
                raise OSError(errno.EIO, "the file system does not rename what was written", str(path.toString()))

    def remove(self, key: str) -> None:
        """See ``Store``."""
        with self._opened(key) as (system, path):
            system.delete(path, False)

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[Any, Any]]:
        """Yield the file system of a key and the key's path; Java's exceptions become OSErrors."""
        host, _, path_in_host = key.partition("/")
        machine = _machine(os.getpid())
        from py4j.protocol import Py4JError, Py4JJavaError

        try:
            path = _path(f"{self.scheme}://{host}/{path_in_host}")
            yield path.getFileSystem(machine.configuration), path
        except Py4JJavaError as error:
            raise _plain(self.scheme, error.java_exception) from error
        except Py4JError as error:
            raise OSError(errno.EIO, f"Hadoop's Java machine does not answer: {error}") from error


@lru_cache(maxsize=1)
def _remove_copies_of_killed(_process: int) -> None:
    """Remove the copies for reading that no process holds: the reader was killed before the copy lost the name."""
    for path in Path(tempfile.gettempdir()).glob(f"{_COPY}*"):
        with suppress(OSError):  # another user's, or another process is at work
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(handle)


@lru_cache(maxsize=1024)
def _remove_abandoned(store: HadoopStore, folder: str) -> None:
    """Remove temporary files that writers left in a folder when the writers were killed; once a process and folder."""
    pattern = re.sub(r"([\[\]{}*?\\])", r"\\\1", folder)
    with store._opened(f"{pattern}/.*{_TEMPORARY}") as (system, path):
        oldest_ms = (time.time() - _ABANDONED_S) * 1000
        for status in system.globStatus(path) or ():
            if status.getModificationTime() < oldest_ms:
                system.delete(status.getPath(), False)


@dataclass(frozen=True)
class _Machine:
    gateway: Any
    configuration: Any


@lru_cache(maxsize=1)
def _machine(_process: int) -> _Machine:
    """Return this process's Java machine.

    Raises:
        ConfigError: Java is missing, or Hadoop is missing among Spark's jars.
        MissingExtra: pyspark is not installed.
    """
    require("pyspark", "py4j", part="a path of a Hadoop file system")
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    jars = _jars()
    java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if os.environ.get("JAVA_HOME") else which("java")
    if java is None or not any(jars.glob("hadoop-client-api-*.jar")):
        finding = "no Java (JAVA_HOME, PATH)" if java is None else f"no hadoop-client-api-*.jar in {jars}"
        msg = (
            f"paths of {', '.join(HADOOP_SCHEMES)} are read through the Hadoop that Spark brings: {finding}. (pyarrow's"
            " own HadoopFileSystem would need libhdfs, which its package does not hold.)"
        )
        raise ConfigError(msg)
    classpath = os.pathsep.join(filter(None, [os.environ.get("HADOOP_CONF_DIR"), str(jars / "*")]))
    port, secret = launch_gateway(
        classpath=classpath,
        jarpath=str(next(jars.glob("py4j-*.jar"))),
        java_path=java,
        javaopts=["-Xmx512m"],
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=secret, auto_convert=True))
    return _Machine(gateway, gateway.jvm.org.apache.hadoop.conf.Configuration())


def _jars() -> Path:
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home) / "jars"
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"


def _path(url: str) -> Any:
    return _machine(os.getpid()).gateway.jvm.org.apache.hadoop.fs.Path(url)


def _entry(key: str, status: Any) -> Entry:
    is_folder = bool(status.isDirectory())
    n_bytes = 0 if is_folder else int(status.getLen())
    return Entry(key.rstrip("/"), n_bytes, int(status.getModificationTime()) * 10**6, is_folder)


def _plain(scheme: str, exception: Any) -> OSError:
    """Return Java's exception as an OSError."""
    kind, text = str(exception.getClass().getSimpleName()), " ".join(str(exception.getMessage()).split())
    if kind == "FileNotFoundException":
        return FileNotFoundError(errno.ENOENT, "no such file")
    if kind == "AccessControlException":
        return PermissionError(errno.EACCES, text)
    is_missing = kind == "UnsupportedFileSystemException" or "ClassNotFoundException" in text
    if is_missing and scheme in _JARS:
        text = f"Spark's jars hold nothing for {scheme}: put there {_JARS[scheme]}"
    return OSError(errno.EIO, f"Hadoop: {text or kind}")
