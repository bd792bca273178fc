"""The analyses, a file each and a row in `table.py`."""
