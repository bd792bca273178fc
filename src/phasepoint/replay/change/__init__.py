"""The whole run under a change that was replayed."""
