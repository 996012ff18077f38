"""The early stop of a training whose tests fall below given accuracies."""

from __future__ import annotations

from deepspark_ops.config.shared_options.schedules import AccuracyFloor, floor_entries
from deepspark_ops.events import Event
from deepspark_ops.run_view.chart_lines import is_share
from deepspark_ops.run_view.series import net_outputs


class EarlyStop:
    """Compares the tests of the first test net with the least accuracies of ``stop_below``. Used by a single thread.

    Attributes:
        reason: The test that was too low; empty until then.
    """

    def __init__(self, stop_below: AccuracyFloor, start_clock: int) -> None:
        """Take the accuracies of ``stop_below`` beyond the clock that the run starts from."""
        self.reason = ""
        self._pending = [(clock, accuracy) for clock, accuracy in floor_entries(stop_below) if clock > start_clock]

    def see(self, event: Event) -> None:
        """Compare a test with the pending accuracies; the first test at or after a clock counts, later tests do not."""
        if event.kind != "evaluation" or event.data.get("test_net", 0) != 0 or self.reason:
            return
        accuracy = next((value for name, value in net_outputs(event).items() if is_share(name)), None)
        if accuracy is None:
            return
        due = [least for clock, least in self._pending if clock <= event.clock]
        self._pending = self._pending[len(due) :]
        if due and not accuracy >= due[-1]:
            self.reason = f"accuracy {accuracy:.4g} at clock {event.clock} is below {due[-1]:.4g}"
