"""The pages about a run: training, samples, labels, the model in production, trials."""
