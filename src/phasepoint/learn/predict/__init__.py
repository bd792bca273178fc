"""How long programs take on a device."""
