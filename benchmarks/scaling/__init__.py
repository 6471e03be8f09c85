"""How many workers a job gets, and what that is worth: real runs and simulations."""
