"""What a run of Dagster does in another process: jobs on tables, one after the other, in one Spark session.

    child      the process: it does the jobs, and reports when each begins and when it ends
    mirror     another process, which mirrors topics
    jobs       what can be asked for, a load or a reload, how that and the reports are written, and why a job failed

Nothing here knows Dagster except for `child` and `mirror`, which speak Dagster's Pipes protocol. The run starts and
reads the process in `defs.load_process`.
"""
