"""Local steps: ranks train alone for some iterations, and then average what they moved (docs/local-steps.md)."""
