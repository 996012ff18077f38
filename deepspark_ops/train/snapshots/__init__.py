"""Snapshots: the driver writes snapshots; a starting run and the workers read them."""
