"""A server for a bundle over HTTP: a page for pictures, JSON for programs. For tests and small loads."""
