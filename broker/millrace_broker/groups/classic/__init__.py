"""The classic group protocol: clients assign partitions, the broker keeps them in step (KIP-62, 345, 394, 814).

state          the states, and the table of what follows in each
facts          what a group is and allows: who is in it, who leads it, which protocol the members vote for
classic_group  one group, which that table moves
"""
