"""What the demo declares; it is copied into its platform's folder `defs/`, where a user would write it."""
