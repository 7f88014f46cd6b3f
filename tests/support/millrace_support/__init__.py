"""What tests of several rooms use: doors that fail, hostile input, a second opinion on Kafka's protocol, other servers.

It lies on pytest's `pythonpath` and is no part of the wheel. What a user's tests need is `millrace.testing`.
"""
