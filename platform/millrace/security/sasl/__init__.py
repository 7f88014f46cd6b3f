"""The mechanisms of SASL, for the side that proves its identity and the side that checks it, without a connection.

    client_mechanism(properties)   a client's side, of Kafka's properties
    PlainServer, ScramServer, …    the broker's side of one authentication

Messages go in and out as bytes. No error message and no representation of a value has a password in it.
"""
