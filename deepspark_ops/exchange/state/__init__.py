"""The state of a run that survives a server process: grants, data leases, sessions, the journal, snapshot parts.

Every change is a message (``messages``), applied by ``run_state`` and written by ``journal``. Pure logic: callers pass
the time, ``server/shared_state`` has the locks, ``center`` has the vectors.
"""
