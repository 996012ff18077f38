"""TensorFlow's start-up lines do not reach a user; everything else on standard error does."""

import os
import sys

import pytest

from caffe_import.tensorflow_start import start_lines_dropped

LINES = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    "I0000 00:00:1795329732.543794   32272 port.cc:153] oneDNN custom operations are on. You may see slightly\n"
    "I0000 00:00:1795329732.552942   32272 cudart_stub.cc:31] Could not find cuda drivers on your machine\n"
    "I0000 00:00:1795867428.571946   31611 devices.cc:67] Number of eligible GPUs (core count >= 8): 0\n"
    "E0000 00:00:1795329742.316566   32272 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error\n"
)


@pytest.fixture(autouse=True)
def _no_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "to be put back")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")


def fail_to_import() -> None:
    with start_lines_dropped():
        write_lines("what went before\n")
        msg = "no such library"
        raise ImportError(msg)


def write_lines(more: str) -> None:
    os.write(2, LINES.encode())  # as C++ does
    sys.stderr.write(more)


def test_start_lines_are_dropped_and_other_lines_come(capfd: pytest.CaptureFixture[str]) -> None:
    with start_lines_dropped():
        write_lines("a line of somebody else\n")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "a line of somebody else\nafter\n"


def test_lines_before_an_error_come_and_the_error_too(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ImportError, match="no such library"):
        fail_to_import()
    assert capfd.readouterr().err == "what went before\n"


def test_a_users_own_level_wins(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    with start_lines_dropped():
        write_lines("")
    assert capfd.readouterr().err == LINES
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"
