"""`make soak` for half a minute, with a seed: each kind of fault of a long soak, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.faults import KINDS
from tests.soak.soak import Soak, soak

pytestmark = [pytest.mark.tf, pytest.mark.slow, pytest.mark.long]

SEED = 20
MAX_ITER = 200


def test_faults_of_every_kind_lose_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    # So few steps of asynchronous workers end a point or two apart from run to run.
    settings = Soak(0.0, SEED, tmp_path / "soak", max_iter=MAX_ITER, gap_s=0.8, within=0.03)
    line, held, (undisturbed, disturbed) = soak(settings, lines.append)
    assert held, "\n".join([line, *lines])
    assert line.startswith(f"soak: faults={len(disturbed.injected)} lost=0 accuracy=")
    assert {fault.fault.kind for fault in disturbed.injected} <= set(KINDS)
    assert len(disturbed.injected) >= 6
    assert disturbed.n_starts > 4 or disturbed.n_server_starts > 1
    assert disturbed.acknowledged == undisturbed.acknowledged == MAX_ITER
    for result in (undisturbed, disturbed):
        assert result.center is not None
        assert result.center.worst < 2e-4
    page = (tmp_path / "soak" / "soak.html").read_text()
    assert page.count("<svg") == 2
    assert page.count('class="lasts"') == len(disturbed.injected)
