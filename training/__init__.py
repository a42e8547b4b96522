"""Makes the bundled number-speaking voice: teacher speech, codec, language model, export, evaluation."""
