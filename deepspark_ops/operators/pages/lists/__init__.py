"""The pages about many runs: the list, the comparison, datasets."""
