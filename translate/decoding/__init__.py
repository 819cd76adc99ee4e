"""Search: from a model and a source to the translations it finds likeliest."""
