"""What is found out about a run once, for everything that is said of it."""
