"""Trainings of one solver in several ways: trials, their courses, and the table and page of the comparison."""
