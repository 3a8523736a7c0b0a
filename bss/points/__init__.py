"""Points (steps and tokens to a target loss) from loss curves, and analyses of points."""
