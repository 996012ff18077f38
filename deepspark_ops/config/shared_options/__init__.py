"""Options of several stages, with types: durations, schedules, formats."""
