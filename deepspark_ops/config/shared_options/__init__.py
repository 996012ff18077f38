"""Options that several stages declare, and their types: durations, schedules, formats."""
