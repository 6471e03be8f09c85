"""The dispatcher: jobs and epochs, the worker pool, and the front that speaks stock's protocol."""
