"""Trainings of a solver in several ways: trials, courses, and the table and page of the comparison."""
