"""Checkpoints noticed as the frameworks save them: a file for each framework, a row in `checkpoints.py`."""
