"""E(S) at one rate, the schedule it calls for, and that schedule against constants."""
