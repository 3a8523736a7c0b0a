"""What all laws are fitted with: the solver, estimates, the bootstrap, power laws."""
