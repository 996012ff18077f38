"""Stage plan: predicts runs on clusters of many sizes by simulation. No TensorFlow."""
