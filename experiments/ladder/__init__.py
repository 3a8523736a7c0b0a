"""E(S), LRs, width and mixtures over model sizes; each size is predicted from smaller ones."""
