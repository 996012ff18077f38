"""Scores of a trained net and the report drawn from them."""
