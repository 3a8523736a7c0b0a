"""What a run leaves behind: its directory, curve, checkpoints and status."""
