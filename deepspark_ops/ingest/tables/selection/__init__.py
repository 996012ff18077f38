"""Which rows of a table become samples, and on which side: by limit, duplicates, classes, lists of ids."""
