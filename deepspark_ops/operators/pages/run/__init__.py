"""The pages about a run: training, bundle, the model in production, trials."""
