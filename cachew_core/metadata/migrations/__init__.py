"""How the tables came to be what they are: one revision for each change, run when a store opens."""
