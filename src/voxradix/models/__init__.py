"""Models that generate rows, one package a family."""
