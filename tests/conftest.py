"""Marks every test with the kind of its folder: ``pytest -m unit`` needs no mark in the file."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings

from tests.e2e.shared_airflow import AirflowSession
from tests.reference.open_databases import open_databases
from tests.spark_classes import jvm_options
from tests.unimported_files import KINDS, UnimportedFiles, kind_of_path

# A busy machine is no finding: time limits belong to pytest-timeout. The suite draws the same examples every time,
# so that a commit is what turns it red; `make explore` draws new ones, and many.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deepspark", _PATIENT, derandomize=True)
settings.register_profile("explore", _PATIENT, print_blob=True)
settings.load_profile("deepspark")

# The options of all commands are built once in a process. Each call in a test would build them again, in 30 ms.
typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)

_AIRFLOW_HOME = pytest.StashKey[str]()
_AIRFLOW_SESSION = pytest.StashKey[AirflowSession]()
_KINDS_BY_LENGTH = ("e2e", "integration", "parity", "architecture", "unit")
"""By how long a test file of theirs runs."""
_ONE_PROCESS = ("tests/integration/ingest/",)
"""Folders whose files share a fixture that costs more than their tests: a Spark."""


def pytest_configure(config: pytest.Config) -> None:
    """Make Ctrl-C effective, and give Airflow a home: by default an import writes into ~/airflow."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts its background jobs so, and every child process of the tests would ignore Ctrl-C, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # so does nohup
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # no run of a test is told to whoever's MLflow
    home = tempfile.mkdtemp(prefix="deepspark-tests-airflow-")
    config.stash[_AIRFLOW_HOME] = home
    if not hasattr(config, "workerinput"):  # in pytest's own process: those of xdist use what it began
        config.stash[_AIRFLOW_SESSION] = AirflowSession(Path(home, "shared"))
        config.pluginmanager.register(_EndOfAirflow(config))
    config.pluginmanager.register(UnimportedFiles(config.option.markexpr))
    os.environ.update(
        AIRFLOW_HOME=home, AIRFLOW__CORE__LOAD_EXAMPLES="False", AIRFLOW__USAGE_DATA_COLLECTION__ENABLED="False"
    )
    os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm_options())


@pytest.fixture(autouse=True)
def _no_log_into_closed_streams() -> None:
    """A command of an earlier test logs to the captured stream of the test, closed by now."""
    for handler in list(logging.root.handlers):
        if isinstance(handler, logging.StreamHandler) and getattr(handler.stream, "closed", False):
            logging.root.removeHandler(handler)


@pytest.fixture(autouse=True)
def _no_database_left_open() -> Iterator[None]:
    """A process may open an LMDB only once: a test that leaves an LMDB open breaks the next reader."""
    yield
    assert not open_databases(), f"left open: {open_databases()}"


@pytest.fixture(autouse=True)
def _no_limit_left_set() -> Iterator[None]:
    """Reset the process-wide limits on a net's files and modules after each test."""
    yield
    if roots := sys.modules.get("caffe_import.file_access.allowed_roots"):
        roots.use_allowed_roots(None)
    if layers := sys.modules.get("caffe_import.net.python_layers"):
        layers.allow_python_modules(())


class _EndOfAirflow:
    """Ends the shared Airflow with its last test: an idle Airflow takes a tenth of a core."""

    def __init__(self, config: pytest.Config) -> None:
        self._session = config.stash[_AIRFLOW_SESSION]
        self._remaining: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._expect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._expect(ids)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if nodeid in self._remaining:
            self._remaining.remove(nodeid)
            if not self._remaining:
                self._session.begin_end()

    def _expect(self, ids: Iterable[str]) -> None:
        self._remaining.update(name for name in ids if name.startswith("tests/e2e/"))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the shared Airflow; an error at its end is a failed test."""
    shared = session.config.stash.get(_AIRFLOW_SESSION, None)
    if shared is None:
        return
    for trouble in shared.end():
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        session.config.get_terminal_writer().line(f"\nFAILED at the end of the shared Airflow: {trouble}", red=True)
    if session.exitstatus == pytest.ExitCode.TESTS_FAILED and shared.was_started:
        session.config.get_terminal_writer().line(
            f"\nLogs and runs of the shared Airflow: {shared.folder_of_failures()}"
        )


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_AIRFLOW_HOME], ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples in the packages' docstrings alone: of the tests' files, half of all, only tests are read."""
    collectors = yield
    return [collector for collector in collectors if type(collector) is pytest.Module]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(getattr(pytest.mark, kind_of_path(item.path)))
    # Alone, the quick tests come first; with several processes (make test) the long files, so that none is left last.
    if "PYTEST_XDIST_WORKER" in os.environ:
        slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
        items.sort(key=lambda item: (_KINDS_BY_LENGTH.index(kind_of_path(item.path)), item.path not in slow))
    else:
        items.sort(key=lambda item: KINDS.index(kind_of_path(item.path)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give a file's tests to one process, and all tests of the folders in ``_ONE_PROCESS``."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class SharedFiles(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folders = [folder for folder in _ONE_PROCESS if nodeid.startswith(folder)]
            return folders[0] if folders else super()._split_scope(nodeid)

    return SharedFiles(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while modules are imported: the search for it took an eighth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: TensorFlow makes much garbage, and no search should pass all modules and
    tests.
    """
    gc.collect()
    gc.freeze()
