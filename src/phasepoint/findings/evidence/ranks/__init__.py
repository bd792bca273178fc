"""Which rank the others wait for: by what each says of itself all the time, and by the captured steps."""
