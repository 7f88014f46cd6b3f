"""`millrace doctor`: whether a machine, a configuration and a cluster suit a broker, and what to change.

machine, configuration, folders, network, cluster
           of each matter first the facts, read where they are, then checks, pure functions from facts to findings
examine    which facts are gathered for what is asked, and which checks judge them
"""
