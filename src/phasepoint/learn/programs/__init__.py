"""Programs of which a corpus is made: networks written by hand, and a generator of well-formed ones."""
