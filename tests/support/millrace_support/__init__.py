"""Code that tests of several rooms share: doors that fail, hostile input, Kafka's message definitions, test servers.

The package lies on pytest's `pythonpath` and is not in the wheel. `millrace.testing` has what users' tests need.
"""
