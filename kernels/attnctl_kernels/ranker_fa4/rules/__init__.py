"""RFA4: what the ranker's wrappers demand, of dense rows and of packed ones."""
