"""The revisions, oldest first. One that was published is never changed."""
