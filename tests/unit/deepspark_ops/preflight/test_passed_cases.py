import json
import tempfile
from pathlib import Path

import pytest

from caffe_import.parity.case import Case
from deepspark_ops.preflight import passed_cases
from deepspark_ops.preflight.passed_cases import PassedCases

TENSORFLOW = "2.0"


@pytest.fixture(autouse=True)
def host(monkeypatch, tmp_path):
    """Return the host's folder of temporary files."""
    folder = tmp_path / "host"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def case(tmp_path):
    (tmp_path / "relu.npz").write_bytes(b"numbers of Caffe")
    return Case(tmp_path, {"name": "relu", "kind": "layer", "files": ["relu.npz"]})


def cases_of(tensorflow=TENSORFLOW, **environment):
    return PassedCases(tensorflow, environment)


def folder_of(host):
    (folder,) = host.iterdir()
    return folder


def test_a_passed_case_is_known_with_its_error(case):
    assert cases_of().errors([case]) == {}
    cases_of().add([case], {"relu": 3e-7})
    assert cases_of(TF_CPP_MIN_LOG_LEVEL="2", PATH="/other").errors([case]) == {"relu": 3e-7}


def test_cases_are_added_to_those_before(case, tmp_path):
    other = Case(tmp_path, {"name": "other", "files": []})
    cases_of().add([case], {"relu": 1e-7})
    cases_of().add([case, other], {"other": 2e-7})
    assert cases_of().errors([case, other]) == {"relu": 1e-7, "other": 2e-7}


@pytest.mark.parametrize("changed", ["entry", "file", "missing file"])
def test_a_changed_case_is_unknown(case, tmp_path, changed):
    cases_of().add([case], {"relu": 1e-7})
    if changed == "file":
        (tmp_path / "relu.npz").write_bytes(b"other numbers of Caffe")
    elif changed == "missing file":
        (tmp_path / "relu.npz").unlink()
    else:
        case = Case(tmp_path, {**case.record, "phase": "TEST"})
    assert cases_of().errors([case]) == {}


@pytest.mark.parametrize(
    "changed", [{"tensorflow": "2.1"}, {"TF_ENABLE_ONEDNN_OPTS": "0"}, {"ONEDNN_MAX_CPU_ISA": "AVX2"}]
)
def test_another_tensorflow_and_other_settings_of_it_know_nothing(case, changed):
    cases_of().add([case], {"relu": 1e-7})
    assert cases_of(**changed).errors([case]) == {}


def test_other_code_and_another_processor_know_nothing(case, monkeypatch, tmp_path):
    cases_of().add([case], {"relu": 1e-7})
    package = tmp_path / "caffe_import"
    package.mkdir()
    (package / "__init__.py").write_text("# other code\n")
    with monkeypatch.context() as patch:
        patch.setattr(passed_cases.caffe_import, "__file__", str(package / "__init__.py"))
        assert cases_of().errors([case]) == {}
    monkeypatch.setattr(passed_cases, "_processor", lambda: iter(["another model"]))
    assert cases_of().errors([case]) == {}


@pytest.mark.parametrize(
    "content", ["", "[]", "null", "{}", '{"format_version": 1, "computed_by": "x", "passed": {}}', "\xff"]
)
def test_a_damaged_file_knows_nothing_and_is_replaced(case, host, content):
    cases_of().add([case], {"relu": 1e-7})
    file = folder_of(host) / "passed.json"
    file.write_bytes(content.encode("latin-1"))
    assert cases_of().errors([case]) == {}
    cases_of().add([case], {"relu": 2e-7})
    assert cases_of().errors([case]) == {"relu": 2e-7}


@pytest.mark.parametrize("passed", [[1], {"x": "y"}, {"x": None}, 3])
def test_passed_cases_of_another_form_are_unknown(case, host, passed):
    cases_of().add([case], {"relu": 1e-7})
    file = folder_of(host) / "passed.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "passed": passed}))
    assert cases_of().errors([case]) == {}


def test_a_folder_into_which_others_can_write_is_not_used(case, host):
    cases_of().add([case], {"relu": 1e-7})
    folder_of(host).chmod(0o777)
    assert cases_of().errors([case]) == {}
    cases_of().add([case], {"relu": 2e-7})
    folder_of(host).chmod(0o700)
    assert cases_of().errors([case]) == {"relu": 1e-7}


def test_a_link_to_another_folder_is_not_used(case, host, tmp_path):
    cases_of().add([case], {"relu": 1e-7})
    folder = folder_of(host)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert cases_of().errors([case]) == {}


def test_no_folder_of_temporary_files_is_no_error(case, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(Path("/proc/no/such/folder")))
    cases_of().add([case], {"relu": 1e-7})
    assert cases_of().errors([case]) == {}
