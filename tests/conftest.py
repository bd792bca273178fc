"""How properties are tried: by what they give, not by how fast, since the machine may be busy."""

from hypothesis import HealthCheck, settings

settings.register_profile("phasepoint", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("phasepoint")
