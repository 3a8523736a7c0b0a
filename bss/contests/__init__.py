"""Who competes, at equal tokens or equal steps, and who wins: contests, tests, claims."""
