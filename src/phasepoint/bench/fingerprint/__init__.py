"""A device's fingerprint: ten models measured on it, and from them and other devices the times of all the rest."""
