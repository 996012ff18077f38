"""The arithmetic of each strategy in numpy, one file each."""
