"""The server process: connections and their sessions, control calls, the server's own changes of the center, reports.

``launch`` is the driver's side. ``state`` has the state of a run, ``center`` applies pushes.
"""
