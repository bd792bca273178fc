"""The rules: a file each, whose docstring is its page, and a row in `table.py`."""
