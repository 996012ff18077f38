"""The center in memory: its file, worker counters and locks, where a push lands (``pushes``), and lost updates.

Arithmetic is the strategies'; who may exchange when, and how vectors travel, is not known here.
"""
