"""How much clients may do (KIP-13, 124, 219, 599, 612): limits, measured rates and throttle times.

All of it is pure: the time is handed in, and what is throttled is muted elsewhere (`net.connection`, `net.admission`).
"""
