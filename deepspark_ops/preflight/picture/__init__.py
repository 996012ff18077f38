"""Picture of a net: positions of its boxes, and the SVG text."""
