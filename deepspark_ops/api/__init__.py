"""The stages as functions, their progress and their results: for the command line and for Python."""
