"""The console in the browser, as the admin endpoint serves it (docs/console.md).

    browser ──HTTP──► admin endpoint: `gateway`, guarded by `guard` ────Unix socket──► the console's process
                                                                                          │ Kafka protocol
                                                                                          ▼
                                                                                      the cluster

Pages are made in a process of their own (`millrace_ops.console`), which asks the cluster as any other client does. So
each page shows the whole cluster, access control lists hold for it, and neither a large page nor the memory of what
reads tables burdens the broker: a thread of the broker's own would take the interpreter from its event loop for 5 ms at
each system call. The process starts with the first page that is asked for, and ends with the broker. What the cluster
can't be asked for, the broker's own health, comes with the request (`own_troubles`).
"""
