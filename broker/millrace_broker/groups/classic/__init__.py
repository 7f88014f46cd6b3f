"""The classic group protocol: clients assign partitions, the coordinator keeps them in step (KIP-62, 345, 394, 814).

members   who is in a group, who leads it, for which protocols they vote
events    what members ask, and what they are answered
group     the state table
"""
