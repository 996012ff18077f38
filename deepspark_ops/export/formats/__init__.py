"""The forms in which a bundle holds its model: one file a format, all with the same functions."""
