"""All logs of a broker: opens, makes, looks after and closes them."""
