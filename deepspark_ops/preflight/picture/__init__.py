"""The picture of a net: where its boxes are, and the SVG text."""
