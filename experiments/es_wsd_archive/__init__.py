"""Three E(S) under WSD, at a shared rate and at tuned rates."""
