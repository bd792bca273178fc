"""Rules of what the host does."""
