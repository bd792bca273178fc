"""Settings searched by replaying the phase at stake, before the next job."""
