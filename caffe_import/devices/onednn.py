"""Whether TensorFlow computes with oneDNN on this CPU, found out without TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_FLAGS: Final = {"avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16"}
"""A CPU with one of these starts oneDNN. Source: TensorFlow, ``IsMklEnabled`` in core/util/port.cc (Linux, x86)."""
_SWITCH: Final = "TF_ENABLE_ONEDNN_OPTS"


def starts_with_onednn(environment: Mapping[str, str], cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether a TensorFlow process of ``environment`` computes with oneDNN.

    Args:
        environment: Its variable TF_ENABLE_ONEDNN_OPTS decides, if set to a truth value; otherwise the CPU does.
        cpuinfo: The kernel's description of the CPUs; a system without the file counts as one without oneDNN.
    """
    switch = environment.get(_SWITCH, "").lower()
    if switch in ("0", "1", "false", "true"):
        return switch in ("1", "true")
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.is_file() else None
    return flags is not None and not _FLAGS.isdisjoint(flags[1].split())
