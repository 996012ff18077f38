"""A bundle's answers on any inputs, one row each: classes and scores, or the values of its blobs. No run is needed."""
