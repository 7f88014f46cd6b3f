"""The cluster as this broker knows it, and the changes of it that clients ask for.

store                        the interface of a metadata store, which keeps everything below
local_store                  the store of a standalone broker: a file
zookeeper_store              the store of a cluster; `zookeeper_*` read and write its parts on Apache Kafka's nodes
metadata_image               the store's content as one immutable value; `metadata_cache` holds the newest one
metadata_update              how a controller's UpdateMetadata changes an image, and what differs between two images
topic_manager                creates, changes and deletes topics; `topics` has their rules, and places their replicas
config_manager, acl_manager, token_manager   the same for configurations, access control lists, delegation tokens
leader_epochs                the epochs with which a standalone broker begins to lead
"""
