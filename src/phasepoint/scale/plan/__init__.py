"""What a larger system will take: time, by which batch, with which interval, and what holds it back."""
