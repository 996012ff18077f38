"""Scores of a trained net and the report of the scores."""
