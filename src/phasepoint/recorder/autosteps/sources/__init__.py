"""What tells of steps: a file for each source, and a row in `start.SOURCES`."""
