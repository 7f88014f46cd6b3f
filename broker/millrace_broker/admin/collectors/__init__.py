"""Makes Prometheus' families of what the broker counts (docs/metrics.md).

All collectors run on the event loop, but for those of `machine`, which may wait for a disk. `exposition` writes the
families as text a piece at a time, and requests are handled between the pieces: so a collector that would take longer
than a few milliseconds gives its samples as the rows of a `LargeFamily`, one by one.
"""
