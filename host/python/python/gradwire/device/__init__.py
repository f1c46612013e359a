"""Gradients that stay where they are: coded on their own device, and exchanged over the process group that a script has."""
