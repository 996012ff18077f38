"""A worker's files: ``on_host`` decides what a worker reads from the driver, and ``sent_files`` sends files to it."""
