"""The server process: connections, sessions, control calls, reports."""
