"""bss: batch-size scaling laws, from training sweeps to batch schedules."""
