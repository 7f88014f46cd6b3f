"""The mechanisms of SASL, on the side that proves who it is and on the side that checks it: neither knows a connection.

    client_mechanism(properties)   a client's side, of Kafka's properties      ClientMechanism
    PlainServer, ScramServer, …    the broker's side of one authentication     ServerMechanism

Messages go in and out as bytes. Passwords are in no message of an error, and in no representation of a value.
"""
