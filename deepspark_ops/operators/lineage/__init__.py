"""Lineage of the stages for OpenLineage: what each stage read and wrote."""
