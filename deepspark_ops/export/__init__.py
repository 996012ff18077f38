"""The deliverable: a bundle, checked by a run of the bundle."""
