"""What a run of Dagster has done in another process: jobs on tables, one after the other, in one Spark session.

    child      the process: it takes jobs, and tells of each when it begins and when it ends
    messages   what the process is given, and what it tells
    jobs       what can be asked for: a load, a reload
    failures   why a job failed, in words: by an error, or because its process ended

Nothing here knows Dagster except for `child`, which speaks Dagster's Pipes protocol. The side of the run is
`defs.loads.child_process`.
"""
