"""Options of commands outside the stages of a run."""
