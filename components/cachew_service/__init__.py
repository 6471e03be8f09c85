"""Component that stands a Cachew service up."""
