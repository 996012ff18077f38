from __future__ import annotations

from pathlib import Path

import pytest

from caffe_import.devices.onednn import starts_with_onednn

CPUS = {
    "fpu sse2 avx avx2 fma": False,  # Haswell, Zen 2
    "avx avx2 avx512f avx512vl": False,  # Skylake-SP
    "avx avx2 avx512f avx512_vnni": True,  # Cascade Lake
    "avx avx2 avx_vnni": True,  # Alder Lake
}


@pytest.mark.parametrize("flags", CPUS)
def test_the_flags_of_the_cpu_decide(tmp_path: Path, flags: str) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nvmx flags\t: avx512_vnni\nflags\t\t: {flags}\nbugs\t\t: spectre_v1\n")
    assert starts_with_onednn({}, cpuinfo) is CPUS[flags]
    assert starts_with_onednn({"TF_ENABLE_ONEDNN_OPTS": "0"}, cpuinfo) is False
    assert starts_with_onednn({"TF_ENABLE_ONEDNN_OPTS": "True"}, cpuinfo) is True
    assert starts_with_onednn({"TF_ENABLE_ONEDNN_OPTS": "perhaps"}, cpuinfo) is CPUS[flags]


def test_a_system_without_the_file_counts_as_a_cpu_without_onednn(tmp_path: Path) -> None:
    assert starts_with_onednn({}, tmp_path / "none") is False
