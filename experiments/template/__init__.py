"""Does weight decay change the best batch size? Copy this folder to start a study."""
