"""Results of each sample alone, and of groups of samples."""
