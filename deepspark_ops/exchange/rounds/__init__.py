"""The end of a round: the needed workers, and the center's movement by all pushes.

The solvers' step and the L-BFGS search are here; ``strategies`` names the strategies with rounds.
"""
