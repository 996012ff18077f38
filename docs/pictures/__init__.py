"""The pictures of pages in docs and README: ``python -m docs.pictures [NAME ...]`` takes them anew."""
