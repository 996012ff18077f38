"""Options that several stages declare, and the values that such options take: lengths of time, schedules, formats."""
