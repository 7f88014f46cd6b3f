"""`millrace doctor`: whether a machine, a configuration and a cluster suit a broker, and what to change.

facts      what was found: the door to the machine, its disks, ZooKeeper and the brokers
checks     what facts mean, as pure functions from facts to findings
examine    which facts are gathered for what is asked, and which checks judge them
"""
