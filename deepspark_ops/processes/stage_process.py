"""A stage as a separate process: outermost loop, exit code, and end at the parent's death."""

from __future__ import annotations

import errno
import gc
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from caffe_import.errors import CaffeImportError
from caffe_import.extras import missing_extra
from caffe_import.file_access.regular_file import RefusedFileError, regular_text
from deepspark_ops.errors import ConfigError, DataError, DeepSparkError
from deepspark_ops.processes.job_log import FAILED, USER_MISTAKE, StageFailed
from deepspark_ops.processes.parent_death import end_with_parent_thread
from deepspark_ops.processes.spark_failure import JVM_ENDED, jvm_has_ended
from deepspark_ops.stores.store_path import StorePath, data_path

PARENT_WATCH = "DEEPSPARK_PARENT_PID"
"""Environment: the stage's process must end with its parent. Workers and servers inherit it but do not read it."""

_NOT_USABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


class _StageFormatter(logging.Formatter):
    """``LEVEL: first line``, then ``LEVEL| next line`` for each further line, so a reader can join the message."""

    def format(self, record: logging.LogRecord) -> str:
        first, *further = super().format(record).splitlines() or [""]
        return "\n".join([f"{record.levelname}: {first}", *(f"{record.levelname}| {line}" for line in further)])


def _is_for_people(record: logging.LogRecord) -> bool:
    """Filter out py4j's tracebacks in the root logger for each call to an ended JVM."""
    return record.levelno >= logging.WARNING or f"{os.sep}py4j{os.sep}" not in record.pathname


def keep_imports() -> None:
    """Exclude imported objects from garbage collection. Call once per process.

    At exit Python collects garbage several times, which took a fifth of a short command's processor time.
    """
    if not gc.get_freeze_count():
        gc.freeze()


def stage_main(run: Callable[[Path], None], arguments: Sequence[str] | None = None) -> int:
    """Run a stage as the outermost loop of the process and return the exit code.

    Args:
        run: The stage, a function of the path of its config, JSON.
        arguments: The command line without the program's name; default ``sys.argv[1:]``.

    Example:
        ``if __name__ == "__main__": sys.exit(stage_main(main))`` at the end of a stage's entry module.
    """
    keep_imports()
    arguments = sys.argv[1:] if arguments is None else arguments
    log_to_stderr()
    end_with_parent()
    log = logging.getLogger(__name__)
    if len(arguments) != 1:
        log.error("expected one argument, the stage's config as a JSON file; found %d", len(arguments))
        return USER_MISTAKE
    try:
        run(Path(arguments[0]))
    except (ConfigError, DataError, CaffeImportError) as error:
        log.error("%s", error)  # noqa: TRY400 - the message is whole; a traceback would hide it
        return USER_MISTAKE
    except StageFailed as error:
        log.error("%s", error)  # noqa: TRY400
        return error.exit_code if error.exit_code > 0 else FAILED
    except DeepSparkError as error:
        log.error("%s", error)  # noqa: TRY400
        return FAILED
    except Exception as error:
        if trouble := user_trouble(error):
            log.error("%s", trouble[1])  # noqa: TRY400
            return trouble[0]
        log.info("%s", "where it happened:", exc_info=error)
        log.error("%s: %s", type(error).__name__, error)  # noqa: TRY400 - the traceback is above
        return FAILED
    return 0


def log_to_stderr(level: int = logging.INFO) -> None:
    """Write the log of this process from ``level`` on to stderr, in lines for ``JobLog``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_StageFormatter("%(message)s"))
    handler.addFilter(_is_for_people)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("py4j", "absl", "tensorflow", "h5py"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def user_trouble(error: Exception) -> tuple[int, str] | None:
    """Return exit code and message for what whoever started this can put right; None for other errors."""
    if isinstance(error, ModuleNotFoundError) and (message := missing_extra(error)):
        return USER_MISTAKE, message
    if jvm_has_ended(error):
        return FAILED, JVM_ENDED
    return file_trouble(error) if isinstance(error, OSError) else None


def file_trouble(error: OSError) -> tuple[int, str] | None:
    """Return exit code and message if file system or object store refuses a path; None for other errors.

    Example:
        >>> file_trouble(PermissionError(errno.EACCES, "Permission denied", "/data/run"))
        (2, '/data/run: Permission denied; give a path that can be read and written, or make this one so')
    """
    where = error.filename or "a file"
    is_in_store = isinstance(where, str) and isinstance(data_path(where), StorePath)
    if error.errno in _NOT_USABLE:
        return USER_MISTAKE, f"{where}: {error.strerror}; give a path that can be read and written, or make this one so"
    if isinstance(error, RefusedFileError):
        return USER_MISTAKE, f"{where}: {error.strerror}; give another file"
    if error.errno in _NO_ROOM:
        full = error.filename2 or where  # a copy names its source first
        return FAILED, f"{full}: {error.strerror}; make room there, or give a folder on another disk, and run it again"
    if is_in_store:
        return FAILED, f"{where}: {error.strerror}; look at the address, the network and the store, and run it again"
    return None


def read_config_file(path: Path) -> dict[str, Any]:
    """Return the values of a stage's config.

    Raises:
        ConfigError: The file cannot be read, or holds no JSON object.
    """
    try:
        values = json.loads(regular_text(path))
    except OSError as error:
        msg = f"config {path}: {error.strerror or error}"
        raise ConfigError(msg) from error
    except ValueError as error:
        msg = f"config {path}: not JSON: {error}"
        raise ConfigError(msg) from error
    if not isinstance(values, dict):
        msg = f"config {path}: expected a JSON object, found {type(values).__name__}"
        raise ConfigError(msg)
    return values


def end_with_parent() -> None:
    """Request the end of this process at the parent's death, if the process was started with ``job_variables``.

    Needed in the Python driver below spark-submit: the JVM between driver and task is the parent, and a killed JVM
    leaves the Python child alive. Linux only; on other systems the child ends when the pipe to the JVM breaks.
    """
    if PARENT_WATCH in os.environ:
        end_with_parent_thread(os.getppid())
