"""What of a run outlives its server process: grants on the clock, data leases, sessions, the journal, snapshot parts.

Every change is a message (``messages``), applied by ``run_state`` and written by ``journal``. Pure logic: time is
passed in, locks are the server's (``server/shared_state``), vectors the center's.
"""
