"""From the command line to a broker's options.

`given` reads and checks the properties, `options` assembles them, and `identity` finds the broker id.
"""
