"""One solver trained in several ways: which trials there are, how each went, and the table and page of them all."""
