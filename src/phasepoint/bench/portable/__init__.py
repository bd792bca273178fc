"""A benchmark as one file for a phone, a board or a server where nothing is installed but a runtime."""
