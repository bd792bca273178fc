"""MLPerf Training: how its published systems scaled, and what a larger one will take."""
