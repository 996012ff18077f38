"""Operations of the Python interpreter in a call: a measure of work, undisturbed by other processes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def operation_count(call: Callable[[], object]) -> int:
    """Return how many bytecode operations ``call`` takes; operations inside C functions do not count."""
    n_operations = 0

    def count(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal n_operations
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        n_operations += event == "opcode"
        return count

    tracer = sys.gettrace()
    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(tracer)
    return n_operations
