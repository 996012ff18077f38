"""What a bundle is run on: files, lists, datasets and tables as one stream of records, read as it is needed."""
