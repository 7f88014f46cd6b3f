"""The demo: a year of flights, from a producer to a queried table, each figure checked."""
