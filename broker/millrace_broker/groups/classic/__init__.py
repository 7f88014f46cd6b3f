"""The classic group protocol: clients assign partitions, the broker keeps them in step (KIP-62, 345, 394, 814).

members        who is in a group, who leads it, which protocol the members vote for
state, facts   the states, the table of what follows in each, and what a group is and allows
classic_group  one group, which that table moves
description    what DescribeGroups shows
"""
