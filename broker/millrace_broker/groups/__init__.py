"""Group coordination: consumer groups of both protocols and their offsets."""
