"""rocprofv3's JSON."""
