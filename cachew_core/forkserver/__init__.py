"""Processes with TensorFlow that are there in hundredths of a second, and end with their maker."""
