"""Text with a JSON object in each line, or a folder of such files; gzipped or not."""

from __future__ import annotations

import json

from deepspark_ops.ingest.files.table_files import first_data_file
from deepspark_ops.ingest.sources.format import Look
from deepspark_ops.ingest.sources.tables.table_format import table_format

_ENDINGS = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")


def _looks_like(look: Look) -> bool:
    if look.kind == "folder":
        found = first_data_file(look.path, _ENDINGS)
        return found is not None and _looks_like(Look(found))
    text = (look.text or "").lstrip()
    if not look.start.strip():
        return look.path.name.lower().endswith(_ENDINGS)  # no row
    if not text.startswith("{"):
        return False
    line, _, rest = text.partition("\n")
    try:
        return isinstance(json.loads(line), dict)
    except json.JSONDecodeError:
        return not rest and '":' in line  # one line, longer than the look


FORMAT = table_format(_looks_like)
