"""Pictures of attention and training, on paper and in the terminal."""
