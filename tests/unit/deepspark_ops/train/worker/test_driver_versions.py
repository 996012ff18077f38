"""Versions of a worker beside the driver's: warnings for other libraries, refusal of another protocol."""

from __future__ import annotations

import platform
from importlib.metadata import version
from socket import gethostname

import pytest

from deepspark_ops.errors import ConfigError
from deepspark_ops.train.worker.driver_versions import version_note, versions_of_training


def test_equal_versions_need_no_note() -> None:
    driver = versions_of_training()
    assert driver["Python"] == platform.python_version()
    assert {name: driver[name] for name in ("numpy", "tensorflow")} == {
        name: version(name) for name in ("numpy", "tensorflow")
    }
    assert version_note(3, driver) == ""


def test_each_other_version_is_named_with_host_and_driver() -> None:
    driver = {**versions_of_training(), "numpy": "1.0.0", "Python": "3.99.1"}
    assert version_note(3, driver).startswith(
        f"other versions on {gethostname()}: Python {platform.python_version()} (driver: 3.99.1),"
        f" numpy {version('numpy')} (driver: 1.0.0); give"
    )


def test_a_driver_without_tensorflow_is_no_difference() -> None:
    driver = versions_of_training()
    del driver["tensorflow"]
    assert version_note(0, driver) == ""


def test_another_protocol_is_refused_and_the_other_libraries_are_named_too() -> None:
    driver = {**versions_of_training(), "numpy": "1.0.0", "protocol": "1"}
    with pytest.raises(ConfigError, match=r"worker 2 .*: numpy .* \(driver: 1\.0\.0\), protocol \d+ \(driver: 1\); "):
        version_note(2, driver)
