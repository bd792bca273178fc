"""Rules of what devices do."""
