"""The end of a round: who is waited for, and how the center moves by what all have pushed.

The solvers' step and the L-BFGS search are here; which strategies have rounds is in ``strategies``.
"""
