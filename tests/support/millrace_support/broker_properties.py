"""Properties of brokers that several tests have in common."""

KEEPS_ALL = {"log.retention.ms": "-1"}
"""Records of years ago stay; retention would delete them five minutes after the broker's start."""

LASTING_SESSION = {"zookeeper.session.timeout.ms": "60000"}
"""No session ends while its broker lives, however busy the machine is."""

NO_SCRUBBER = {"log.scrub.bytes.per.second": "0"}
"""Damage is met by whom a test has meet it, and not by the broker's own scrubber before."""

EAGER_SCRUBBER = {"log.scrub.initial.delay.ms": "0", "log.scrub.interval.ms": "100"}
"""The scrubber begins at the broker's start, and again soon after it has checked all."""

ON_REQUEST = {"maintenance.request.interval.ms": "3600000"}
"""Maintenance is done where a test asks for it, as the broker's own timers stand back."""
