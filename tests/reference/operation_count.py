"""Operations of the Python interpreter in a call: a measure of work, undisturbed by other processes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def operation_count(call: Callable[[], object]) -> int:
    """Return how many bytecode operations ``call`` takes; operations inside C functions do not count."""
    return _monitored(call) if sys.version_info >= (3, 12) else _traced(call)


def _monitored(call: Callable[[], object]) -> int:
    """Count by ``sys.monitoring``: Python 3.12 traces no operations of a function that runs already."""
    n_operations = 0

    def count(*_: object) -> None:
        nonlocal n_operations
        n_operations += 1

    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    tool, instruction = monitoring.PROFILER_ID, monitoring.events.INSTRUCTION
    monitoring.use_tool_id(tool, "operation_count")
    monitoring.register_callback(tool, instruction, count)
    monitoring.set_events(tool, instruction)
    try:
        call()
    finally:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, instruction, None)
        monitoring.free_tool_id(tool)
    return n_operations


def _traced(call: Callable[[], object]) -> int:
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
