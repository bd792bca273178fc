"""Checkpoints noticed as the frameworks save them: a file for each framework, and a row in `checkpoints.FRAMEWORKS`."""
