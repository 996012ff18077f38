"""The page of a soak names the attributes of its results."""

from __future__ import annotations

from pathlib import Path

from tests.soak.faults import KINDS, Fault, InjectedFault
from tests.soak.invariants import Growth
from tests.soak.ledger import CenterCheck
from tests.soak.page import write_page
from tests.soak.run import Plan, RunResult


def test_a_page_has_faults_recoveries_and_memory(tmp_path: Path) -> None:
    kind = next(iter(KINDS))
    fault = InjectedFault(Fault(1.0, kind, 0, 2.0, 1), begun=11.0, ended=13.0, worker_s=0.5, clock_s=0.25, stall_s=2.25)
    result = RunResult(
        Plan("disturbed", 100),
        seconds=20.0,
        accuracy=0.98,
        center=CenterCheck(n_open=3, off=0, worst=1e-5),
        begun=10.0,
        injected=[fault],
        clock=[(12.0, 50), (30.0, 100)],
        growths=[Growth("server", 60.0, 2.0**20, 2.0**21)],
        findings=["a finding"],
    )
    write_page(tmp_path / "soak.html", [result], last_line="soak: 0 lost", seed=7)
    page = (tmp_path / "soak.html").read_text()
    assert "1 faults, 0 starts of workers" in page
    assert f"<title>1.0 s: {kind} (worker 0), lasted 2.00 s, recovered after 0.50 s</title>" in page
    assert f'<td>{kind}</td><td class="number">1</td><td class="number">0.50 / 0.50</td>' in page
    assert '<td>server</td><td class="number">60</td><td class="number">1.0</td><td class="number">2.0</td>' in page
    assert '<p class="wrong">a finding</p>' in page
