"""Training under faults for minutes or hours: real processes, random faults by a seed, and what must hold at the end.

    make soak MINUTES=20                    the seed is printed; SEED=N repeats the schedule, STRATEGY=sync another one
    python -m tests.soak --minutes 5 --seed 7 --strategy sync

LeNet on the digits of ``examples/``, four workers, two in shared memory and two by socket, each behind a ``proxy`` of
its own. The real driver (``train.driver.training``) and the real worker loop run; Spark's part, which starts a worker
again, is done by ``workers``. ``faults`` draws and does the faults, ``ledger`` notes pushes and acknowledgements in
each worker, ``watch`` looks at processes and progress, ``invariants`` compares, ``page`` draws.
"""
