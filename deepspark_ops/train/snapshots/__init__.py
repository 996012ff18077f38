"""Snapshots: written by the driver, read at the start of a run and by its workers."""
