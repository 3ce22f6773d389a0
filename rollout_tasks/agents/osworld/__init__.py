"""OSWorld's own agents, as the package ``mm_agents`` has them, unchanged: their classes run in a cell, on a leased desktop."""
