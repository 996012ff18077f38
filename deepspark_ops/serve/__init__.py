"""A bundle behind HTTP: a page for pictures, JSON for programs. For trying out and for small loads."""
