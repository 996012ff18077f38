"""Mistakes of users, as a single class for Python: ``ConfigError``, a ``ValueError``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from caffe_import.errors import CaffeImportError
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.processes.job_log import USER_MISTAKE, StageFailed
from deepspark_ops.processes.stage_process import user_trouble


@contextmanager
def mistakes_as_config_errors() -> Iterator[None]:
    """Raise a user's mistake as ``ConfigError``, with the command's message.

    Raises:
        ConfigError: A wrong argument, a file that is missing or damaged, a net that cannot be built.
        StageFailed: A stage that may succeed another time.
    """
    try:
        yield
    except (CaffeImportError, DataError) as error:
        raise ConfigError(str(error)) from None
    except StageFailed as error:
        if not error.is_user_mistake:
            raise
        raise ConfigError(str(error)) from None
    except OSError as error:
        trouble = user_trouble(error)
        if trouble is None or trouble[0] != USER_MISTAKE:
            raise
        raise ConfigError(trouble[1]) from None
