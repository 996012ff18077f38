"""Answers of a bundle on any inputs, a row per input: classes and scores, or values of blobs. No run is needed."""
