"""The regression corpus: cases with provenance, each a small model and what must hold of it after quantization."""
