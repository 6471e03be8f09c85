"""Component that takes a Cachew service down."""
