"""A stand-in for nvidia-smi on PATH."""

from __future__ import annotations

from pathlib import Path

INDEXES = "--query-gpu=index --format=csv,noheader"
NAMES = "--query-gpu=index,uuid,name,memory.total --format=csv,noheader"


def smi_folder(folder: Path, text: str, *, code: int = 0, query: str = INDEXES) -> Path:
    """Write a program ``nvidia-smi`` that prints ``text`` for ``query``; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\ntest "$*" = "{query}" || exit 64\ncat <<\'END\'\n{text}\nEND\nexit {code}\n')
    program.chmod(0o755)
    return folder
