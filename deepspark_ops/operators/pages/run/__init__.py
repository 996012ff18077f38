"""The pages about one run: how it trains, its bundle, the model that it is measured against, its trials."""
