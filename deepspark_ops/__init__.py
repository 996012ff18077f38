"""The pipeline around the importer: ingest, train, evaluate, export, and the operators and command that run them."""
