"""What rules look at, each measured once for a run."""
