"""The center in memory: file, worker counters, locks, pushes (``pushes``), and lost updates.

``strategies`` has the arithmetic; ``server`` decides when a worker may exchange, ``transport`` moves vectors.
"""
