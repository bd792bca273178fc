"""Which steps behave alike: one door to every method, and what a phase is called."""
