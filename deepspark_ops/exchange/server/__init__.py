"""The server process: connections and their sessions, control calls, the server's own changes of the center, reports.

``launch`` is the driver's side. What is remembered of a run is in ``state``, where a push lands in ``center``.
"""
