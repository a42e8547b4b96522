"""voxradix: serves multi-codebook speech language models and never computes the same audio twice."""
