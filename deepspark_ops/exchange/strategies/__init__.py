"""The strategies, one file each; ``base`` is the interface they share."""
