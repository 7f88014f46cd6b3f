"""The console in the browser: the process that makes its pages (docs/console.md).

    __main__ → server → pages → readers of cluster, records and tables → request, rendering

A broker starts it (`millrace_broker.admin.console`), guards it, and hands requests on over a Unix socket; nothing else
reaches it. It asks the cluster over the Kafka protocol, as the user of its client properties, so each page shows the
whole cluster, and access control lists hold. Each page is a function of a request that returns the name of a template
and its values; a worker thread makes it. What a list of all topics needs is looked at in the background (`watch`),
and only while somebody looks at pages.

Names, keys and values are whatever clients made of them: templates escape all they show, values are cut to a length,
and what has to be looked through is bounded in bytes, records and seconds.
"""
