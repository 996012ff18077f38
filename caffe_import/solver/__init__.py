"""Solver definitions: fields, nets, learning rates."""
