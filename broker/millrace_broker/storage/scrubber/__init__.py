"""The scrubber: reads all logs again and again, slowly, so that damage is found while other replicas are whole."""
