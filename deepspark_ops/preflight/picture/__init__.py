"""Picture of a net: positions of the boxes, and the SVG text."""
