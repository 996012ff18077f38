"""A table of the Spark session's catalog, ``table:db.name``."""

from __future__ import annotations

from deepspark_ops.ingest.sources.tables.table_format import table_format

# Spark alone knows what the table holds; its rows are digested when they have been read.
FORMAT = table_format(lambda look: look.kind == "table", kinds=frozenset({"table"}), digest=lambda _, __: "")
