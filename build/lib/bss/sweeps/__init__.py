"""Many runs: the grid, the index over run directories, the engine that trains them."""
