"""Moving in from other logs."""
