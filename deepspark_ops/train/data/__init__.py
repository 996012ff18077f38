"""The samples of each data layer, and the batches of these samples."""
