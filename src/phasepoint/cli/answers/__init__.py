"""Commands that read a run, or tell what is known."""
