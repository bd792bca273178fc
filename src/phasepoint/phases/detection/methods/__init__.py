"""The methods of phase detection, a file each and a row in `detect.py`."""
