"""The one place that holds the version of the distribution and of everything it ships."""

__version__ = "0.1.0"
