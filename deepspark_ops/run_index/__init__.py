"""What a list of runs shows of each: a small index file in the run's folder, and how a list is chosen from them."""
