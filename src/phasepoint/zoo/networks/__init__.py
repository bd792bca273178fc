"""Networks written by hand, whole."""
