"""The one place that holds the version of the distribution and of the API between its parts."""

__version__ = "0.1.0"

API_VERSION = 1
"""Of `proto/cachew.proto`: changed whenever a peer of the version before would misunderstand."""
