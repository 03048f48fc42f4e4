from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # first calls into torch are slow; no test here is about time
settings.load_profile("untimed")
