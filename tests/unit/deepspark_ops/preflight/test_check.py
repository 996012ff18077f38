import json

import pytest

from deepspark_ops.config.check import CheckConfig
from deepspark_ops.preflight import check as module
from deepspark_ops.preflight.check import run_check
from deepspark_ops.preflight.report import PreflightReport, Problem

SOUND = PreflightReport(format_version=4, solver="s", nets=(), formats=(), work=None, problems=())
REFUSED = SOUND.model_copy(update={"problems": (Problem(severity="error", finding="no loss"),)})


@pytest.fixture
def compared(monkeypatch):
    """Reports that were compared with Caffe."""
    comparisons = []
    monkeypatch.setattr(module, "write_picture", lambda *_: None)
    monkeypatch.setattr(
        module, "certified", lambda report, _, *, on_gpu: comparisons.append((report, on_gpu)) or report
    )
    return comparisons


@pytest.mark.parametrize(("devices", "on_gpu"), [("auto", False), ("cpu", False), ("gpu", True)])
def test_the_comparison_is_on_a_gpu_only_where_the_user_insists_on_one(compared, monkeypatch, devices, on_gpu):
    monkeypatch.setattr(module, "inspect_solver", lambda _: SOUND)
    run_check(CheckConfig(solver="s", parity=True, devices=devices))
    assert compared == [(SOUND, on_gpu)]


@pytest.mark.parametrize(
    ("report", "options", "n_compared", "is_kept"),
    [
        (SOUND, {}, 0, False),
        (SOUND, {"parity": True}, 1, False),
        (SOUND, {"parity": True, "run_dir": True}, 1, True),
        (REFUSED, {"parity": True, "run_dir": True}, 0, False),
    ],
)
def test_a_run_keeps_the_comparison_unless_it_is_refused(
    compared, monkeypatch, tmp_path, report, options, n_compared, is_kept
):
    monkeypatch.setattr(module, "inspect_solver", lambda _: report)
    run_dir = tmp_path / "new" / "run" if options.pop("run_dir", False) else None
    run_check(CheckConfig(solver="s", run_dir=run_dir, **options))
    assert len(compared) == n_compared
    certificate_file = tmp_path / "new" / "run" / "parity.json"
    assert certificate_file.exists() == is_kept
    if is_kept:
        assert json.loads(certificate_file.read_text())["format_version"] == 2
    else:
        assert not (tmp_path / "new").exists()
