"""From what was seen of a table's rows to what is to be written."""
