"""A stand-in for nvidia-smi on PATH."""

from __future__ import annotations

from pathlib import Path


def smi_folder(folder: Path, text: str, *, code: int = 0) -> Path:
    """Write a program ``nvidia-smi`` that prints ``text`` when it is asked for the GPUs' indices; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        'test "$*" = "--query-gpu=index --format=csv,noheader" || exit 64\n'
        f"cat <<'END'\n{text}\nEND\nexit {code}\n"
    )
    program.chmod(0o755)
    return folder
