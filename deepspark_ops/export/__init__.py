"""The deliverable: a bundle that is checked by running it."""
