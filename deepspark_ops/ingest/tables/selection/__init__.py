"""Which rows of a table become samples: by limit, without duplicates, with classes that have as many."""
