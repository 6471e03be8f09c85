"""The worker node: an agent whose slots each run a fresh stock worker behind a gate."""
