"""The controller: the broker of a cluster with ZooKeeper that elects leaders and tells all brokers of them.

cluster_state      brokers, assignments, leaders and in-sync replicas, as the controller knows them
elections          who leads a partition after a failure, at a shutdown, or as an operator prefers, and the answer to a
                   leader that asks for another ISR (pure)
control_requests   what is sent to which broker (pure)
claims             how a broker becomes the controller, and which claim counts
controller_store   reads ZooKeeper, and writes only while the claim of the role holds
broker_channels    sends to each broker in order, again until it answers
active_controller  what follows from each event
controller         claims the role, does one event at a time on its own thread
"""
