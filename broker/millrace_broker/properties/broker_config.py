"""The broker's own properties, under Kafka's names; those of logs are in `storage.config`.

A name that neither Millrace nor Kafka knows is logged and ignored where a file has it, as by Kafka. Given by `--set`,
it is an error (`given`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from millrace.addresses import PLAINTEXT
from millrace.config import MAX_INT, MAX_LONG, ConfigTable, build, declared_keys, setting
from millrace.errors import InvalidConfigError
from millrace_broker.properties.kafka_properties import BROKER, known_rules

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
MAX_DOUBLE = sys.float_info.max
QUEUED_BYTES = "queued.max.request.bytes"
LEAST_QUEUED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The broker's own properties as fields: the field `num_partitions` is the property `num.partitions`."""

    broker_id: int = setting(
        -1, "This broker's id in the cluster; -1: that of its folders, else a new one.", minimum=-1
    )
    node_id: int = setting(-1, "Another name of broker.id.", minimum=-1)
    broker_id_generation_enable: bool = setting(True, "Let ZooKeeper give an id to a broker that has none.")
    reserved_broker_max_id: int = setting(
        1000, "The highest id that an operator may give; generated ids come after it."
    )
    broker_rack: str = setting("", "Where the broker stands, as clients are told.")
    listeners: str = setting(
        "PLAINTEXT://127.0.0.1:9092",
        "NAME://HOST:PORT,… where the broker listens; port 0 takes a free one.",
        is_dynamic=False,
    )
    listener_security_protocol_map: str = setting(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener by its name.",
        is_dynamic=False,
    )
    inter_broker_listener_name: str = setting(
        "", "The listener by which brokers reach each other; else that of their security protocol."
    )
    security_inter_broker_protocol: str = setting(
        PLAINTEXT, "The security protocol of the listener by which brokers reach each other."
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        "GSSAPI",
        "The mechanism by which a broker logs in to others: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.",
        is_dynamic=False,
    )
    authorizer_class_name: str = setting(
        "", "What decides who may do what: Kafka's AclAuthorizer or StandardAuthorizer for ACLs, or MODULE:CLASS."
    )
    super_users: str = setting("", "Principals who may do everything: User:NAME;User:NAME.", has_default=False)
    allow_everyone_if_no_acl_found: bool = setting(
        False, "Let everyone do everything on a resource without an ACL.", has_default=False
    )
    log_dirs: str = setting("", "The folders of the logs.")
    log_dir: str = setting("", "The folders of the logs where log.dirs says none.", has_default=False)
    zookeeper_connect: str = setting("", "The cluster's ZooKeeper.")
    auto_create_topics_enable: bool = setting(True, "Create a topic that a client asks for and that does not exist.")
    delete_topic_enable: bool = setting(True, "Allow topics to be deleted.")
    num_partitions: int = setting(1, "Partitions of a topic whose creator gives none.")
    default_replication_factor: int = setting(1, "Replicas of a topic whose creator gives none.", minimum=1)
    socket_request_max_bytes: int = setting(100 << 20, "The largest frame that is taken in.")
    fetch_max_bytes: int = setting(55 << 20, "The most bytes that one fetch returns, its first batch excepted.")
    fetch_sendfile_enable: bool = setting(False, "Let records leave by sendfile instead of reads and writes.")
    max_incremental_fetch_session_cache_slots: int = setting(
        1_000, "Incremental fetch sessions that are kept at one time; further consumers send full requests."
    )
    max_request_partition_size_limit: int = setting(
        2000, "Partitions that one DescribeTopicPartitions describes at most."
    )
    max_connections: int = setting(10_000, "Connections open at one time.")
    max_connections_per_ip: int = setting(MAX_INT, "Connections open at one time from one address.")
    max_connections_per_ip_overrides: str = setting(
        "",
        "ADDRESS:NUMBER,… where another limit holds than max.connections.per.ip.",
        pattern=r"([0-9a-fA-F.:\[\]]+:\d+)?(,\s*[0-9a-fA-F.:\[\]]+:\d+)*",
    )
    max_connection_creation_rate: int = setting(MAX_INT, "Connections per second that are taken; further ones wait.")
    connections_max_idle_ms: int = setting(
        600_000, "Milliseconds without a byte in or out after which a connection is closed; -1: never.", minimum=-1
    )
    queued_max_request_bytes: int = setting(
        512 << 20,
        "Bytes of requests cut short or in line, and of replies not yet taken, over all connections; -1: no limit.",
        minimum=-1,
    )
    logging_format: str = setting("text", "The form of the broker's log: text or json.", choices=("text", "json"))
    request_log_slower_than_ms: int = setting(
        -1,
        "Requests that take this many milliseconds or more are logged; 0: all, -1: none.",
        minimum=-1,
        is_dynamic=True,
    )
    request_log_clients: str = setting(
        "", "Client ids whose requests are all logged, separated by commas.", is_list=True, is_dynamic=True
    )
    log_retention_check_interval_ms: int = setting(300_000, "Milliseconds between two looks for segments to delete.")
    log_flush_scheduler_interval_ms: int = setting(
        1_000, "Milliseconds between two looks for logs whose flush.ms has passed.", minimum=1
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        60_000, "Milliseconds between two writes of the recovery point checkpoint.", minimum=1
    )
    log_cleaner_enable: bool = setting(True, "Compact the logs whose cleanup.policy asks for it.")
    log_cleaner_backoff_ms: int = setting(15_000, "Milliseconds between two looks for logs to compact.", minimum=1)
    log_cleaner_dedupe_buffer_size: int = setting(
        128 << 20, "Bytes of memory for the keys of one compaction pass, 24 for a key's slot.", minimum=1 << 10
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        MAX_DOUBLE, "Bytes that compaction reads and writes in a second at most.", minimum=1
    )
    log_scrub_bytes_per_second: int = setting(
        16 << 20,
        "Bytes of each data directory's logs that the scrubber checks in a second at most; 0: it checks nothing.",
        minimum=0,
        is_dynamic=True,
    )
    log_scrub_interval_ms: int = setting(
        604_800_000,
        "Milliseconds after which the scrubber goes over all logs again.",
        minimum=1,
        is_dynamic=True,
    )
    log_scrub_initial_delay_ms: int = setting(
        300_000, "Milliseconds after the broker's start in which the scrubber leaves it alone.", minimum=0
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        MAX_LONG, "Bytes of logs that are moved between data folders in a second at most.", minimum=1
    )
    leader_replication_throttled_rate: int = setting(
        MAX_LONG, "Bytes per second that throttled replicas are sent as long as they lag."
    )
    follower_replication_throttled_rate: int = setting(
        MAX_LONG, "Bytes per second that throttled replicas fetch as long as they lag."
    )
    replication_quota_window_num: int = setting(
        11, "Windows over which the rates of throttled replication are measured."
    )
    replication_quota_window_size_seconds: int = setting(1, "Seconds of one such window.")
    quota_window_num: int = setting(11, "Windows over which the rates of clients and of connections are measured.")
    quota_window_size_seconds: int = setting(1, "Seconds of one such window.")
    controller_quota_window_num: int = setting(
        11, "Windows that a client's tokens for changes of topics suffice for at once."
    )
    controller_quota_window_size_seconds: int = setting(1, "Seconds of one such window.")
    replica_lag_time_max_ms: int = setting(
        30_000,
        "Milliseconds that a follower may lag and stay in sync; followers are looked at twice in this time.",
        minimum=1,
    )
    replica_selector_class: str = setting(
        "",
        "Where consumers read: from the leader, or with RackAwareReplicaSelector from a replica in their client.rack.",
        choices=("", LEADER_SELECTOR, RACK_AWARE_SELECTOR),
    )
    num_replica_fetchers: int = setting(1, "Fetchers that ask the same broker for what is followed there.", minimum=1)
    replica_fetch_min_bytes: int = setting(
        1, "Bytes that a leader gathers before it answers a follower's fetch.", minimum=0
    )
    replica_fetch_wait_max_ms: int = setting(500, "Milliseconds that a leader may wait for them.", minimum=0)
    replica_fetch_max_bytes: int = setting(
        1 << 20, "Bytes of one partition that a follower fetches at once, its first batch excepted."
    )
    replica_fetch_response_max_bytes: int = setting(
        10 << 20, "Bytes that a follower fetches at once, the first batch excepted."
    )
    replica_fetch_backoff_ms: int = setting(
        1_000, "The most milliseconds after which a follower tries a fetch that failed again."
    )
    replica_socket_timeout_ms: int = setting(
        30_000, "Milliseconds that a follower waits for a connection or an answer.", minimum=1
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        5_000, "Milliseconds between two writes of the high watermarks' checkpoint.", minimum=1
    )
    producer_id_expiration_check_interval_ms: int = setting(
        600_000, "Milliseconds between two looks for producers to forget."
    )
    zookeeper_session_timeout_ms: int = setting(18_000, "ZooKeeper's session timeout.", minimum=1)
    zookeeper_connection_timeout_ms: int = setting(
        18_000, "Milliseconds to wait for ZooKeeper at the start.", minimum=1, has_default=True
    )
    auto_leader_rebalance_enable: bool = setting(
        True, "As the controller, let the first replicas of partitions lead again where too many do not."
    )
    leader_imbalance_check_interval_seconds: int = setting(
        300, "Seconds between two looks of the controller for brokers that lead too little."
    )
    leader_imbalance_per_broker_percentage: int = setting(
        10, "Percent of its partitions that a broker may fail to lead before the controller steps in.", minimum=0
    )
    controlled_shutdown_enable: bool = setting(True, "Let other brokers take over what this one leads before it stops.")
    controlled_shutdown_max_retries: int = setting(
        3, "How often a stopping broker asks the controller again.", minimum=0
    )
    controlled_shutdown_retry_backoff_ms: int = setting(
        5_000, "Milliseconds before a stopping broker asks the controller again.", minimum=0
    )
    shutdown_drain_timeout_ms: int = setting(
        10_000, "Milliseconds that a stopping broker gives its connections to take their replies.", minimum=0
    )
    single_replica_sync_enable: bool = setting(
        False,
        "Whether a partition that has one replica commits records, and so answers acks=all and shows them to "
        "consumers, only once they are on the disk.",
    )
    admin_token: str = setting(
        "",
        "Bearer token of the admin endpoint, for all but the status of probes; required beyond loopback.",
        is_secret=True,
    )
    admin_token_file: str = setting(
        "",
        "File of the token that changes need where admin.token is not set, made at the first start; by default "
        "admin.token in the first data directory.",
    )
    admin_security_protocol: str = setting(
        "PLAINTEXT",
        "PLAINTEXT, or SSL for an admin endpoint by TLS, with the key store and the other properties of TLS that all "
        "listeners have.",
        choices=("PLAINTEXT", "SSL"),
    )
    admin_console: str = setting(
        "off",
        "The console in the browser, at /console of the admin endpoint: off, read-only, or full, which may change "
        "something.",
        choices=("off", "read-only", "full"),
    )
    admin_console_client_config: str = setting(
        "",
        "The file of client properties by which the console reaches the cluster, and so as whom; without it, it "
        "connects to the first listener with PLAINTEXT.",
    )
    admin_console_warehouse: str = setting(
        "", "The folder, or bucket, of the tables that the console shows; none if empty."
    )
    admin_console_schema_registry: str = setting(
        "", "The address or folder of the schema registry by which the console decodes Avro and Protobuf."
    )
    admin_console_dagster_url: str = setting(
        "",
        "The address of Dagster's UI, http://HOST:PORT, as the broker's machine and browsers reach it: the console "
        "lists its runs and links to its pages; none if empty.",
    )
    admin_console_dagster_cluster: str = setting(
        "millrace",
        "The field cluster of this cluster's defs.yaml, the first part of the keys of its assets in Dagster.",
    )
    maintenance_request_interval_ms: int = setting(
        -1,
        "Milliseconds between requests for retention and compaction to the admin endpoint; the broker's own timers "
        "step in where none comes for three times as long; -1: only the timers do this work.",
        minimum=-1,
    )
    advertised_listeners: str = setting(
        "", "NAME://HOST:PORT,… that clients are told; where the broker listens if empty.", is_dynamic=False
    )

    @property
    def queued_bytes_limit(self) -> int:
        """Returns `queued.max.request.bytes`; for -1 (no limit) more than any machine's memory."""
        return MAX_LONG if self.queued_max_request_bytes == -1 else self.queued_max_request_bytes

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Returns the given properties that this class declares, parsed; raises InvalidConfigError for a bad value."""
        values = BROKER_CONFIG.parse(BROKER_CONFIG.known(properties))
        if -1 < cast("int", values.get(QUEUED_BYTES, -1)) < LEAST_QUEUED_BYTES:
            raise InvalidConfigError(
                f"{QUEUED_BYTES}={values[QUEUED_BYTES]}: Invalid value, expected -1 or at least {LEAST_QUEUED_BYTES}"
            )
        return build(cls, values)


BROKER_CONFIG = ConfigTable(declared_keys(BrokerConfig, known_rules(BROKER)))
