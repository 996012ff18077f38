from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from deepspark_ops.exchange.scratch_file import write_scratch


def test_scratch_is_written_whole_and_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    path = tmp_path / "new" / "a"
    with write_scratch(path) as temporary:
        temporary.write_text("done")
        assert not path.exists()
    assert path.read_text() == "done"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert synced == []
