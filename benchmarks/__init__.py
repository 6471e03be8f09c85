"""Cachew's speed beside stock tf.data service: the same pipelines, in one run (`make bench`)."""
