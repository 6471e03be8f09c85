"""Kubeflow Pipelines components that stand a Cachew service up and take it down."""
