"""Settings of brokers that can be changed while they run, by type (Kafka's DynamicBrokerConfig, 4.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kraftlib.controller.config_values import INT_MAX, ConfigType, whole

NAMES: Final[Mapping[ConfigType, str]] = {
    ConfigType.BOOLEAN: """
        follower.fetch.last.tiered.offset.enable log.preallocate transaction.partition.verification.enable
        unclean.leader.election.enable""",
    ConfigType.STRING: """
        compression.type listener.security.protocol.map log.message.timestamp.type max.connections.per.ip.overrides
        sasl.kerberos.kinit.cmd sasl.kerberos.service.name sasl.mechanism.inter.broker.protocol ssl.client.auth
        ssl.endpoint.identification.algorithm ssl.keymanager.algorithm ssl.keystore.location ssl.keystore.type
        ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.location
        ssl.truststore.type""",
    ConfigType.INT: """
        background.threads compression.gzip.level compression.lz4.level compression.zstd.level
        group.consumer.assignment.interval.ms group.coordinator.cached.buffer.max.bytes
        group.share.assignment.interval.ms group.streams.assignment.interval.ms log.cleaner.io.buffer.size
        log.cleaner.threads log.index.interval.bytes log.index.size.max.bytes log.segment.bytes
        max.connection.creation.rate max.connections max.connections.per.ip message.max.bytes min.insync.replicas
        num.io.threads num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers
        producer.id.expiration.ms remote.fetch.max.wait.ms remote.log.manager.copier.thread.pool.size
        remote.log.manager.expiration.thread.pool.size remote.log.manager.follower.thread.pool.size
        remote.log.reader.threads share.coordinator.cached.buffer.max.bytes""",
    ConfigType.SHORT: "sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds",
    ConfigType.LONG: """
        log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms
        log.cleaner.max.compaction.lag.ms log.cleaner.min.compaction.lag.ms log.flush.interval.messages
        log.flush.interval.ms log.local.retention.bytes log.local.retention.ms log.message.timestamp.after.max.ms
        log.message.timestamp.before.max.ms log.retention.bytes log.retention.ms log.roll.jitter.ms log.roll.ms
        log.segment.delete.delay.ms remote.list.offsets.request.timeout.ms
        remote.log.index.file.cache.total.size.bytes remote.log.manager.copy.max.bytes.per.second
        remote.log.manager.fetch.max.bytes.per.second sasl.kerberos.min.time.before.relogin""",
    ConfigType.DOUBLE: """
        log.cleaner.io.buffer.load.factor log.cleaner.io.max.bytes.per.second log.cleaner.min.cleanable.ratio
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.window.factor
        sasl.login.refresh.window.jitter""",
    ConfigType.LIST: """
        config.providers cordoned.log.dirs listeners log.cleanup.policy metric.reporters sasl.enabled.mechanisms
        sasl.kerberos.principal.to.local.rules ssl.cipher.suites ssl.enabled.protocols""",
    ConfigType.CLASS: "principal.builder.class ssl.engine.factory.class",
    ConfigType.PASSWORD: """
        sasl.jaas.config ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.password
        ssl.truststore.certificates ssl.truststore.password""",
}
_KINDS: Final[Mapping[str, ConfigType]] = {name: kind for kind, names in NAMES.items() for name in names.split()}
_OF_A_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(?:[^.]*\.)??((?:ssl|sasl|max|principal|num)\..+)")
_OF_SINGLE_BROKERS: Final = re.compile(
    r"(?:listener\.name\.[^.]*\.(?!(?:max\.connections|max\.connection\.creation\.rate|num\.network\.threads)$)|ssl\.|sasl\.)"
    r".*|listeners|listener\.security\.protocol\.map|principal\.builder\.class|cordoned\.log\.dirs"
)
ONLY_OF_LISTENERS: Final = frozenset(
    """ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type""".split()
)
"""Settings that a node takes with the prefix of a listener only, and ignores otherwise."""

SENSITIVE: Final = frozenset({ConfigType.PASSWORD, ConfigType.UNKNOWN})
"""The value of a setting of these types is never told: an unknown one may hold anything."""


def kind_of(name: str) -> ConfigType:
    """Return the type of a setting, also of one of a listener."""
    return _KINDS.get(base_of(name), ConfigType.UNKNOWN)


def base_of(name: str) -> str:
    """Return the name of a setting without the prefix of a listener."""
    of_a_listener = _OF_A_LISTENER.fullmatch(name)
    return name if of_a_listener is None else of_a_listener[1]


def is_for_all(name: str) -> bool:
    """Whether Kafka takes a setting for all brokers together. It ignores one that is for single brokers."""
    return not _OF_SINGLE_BROKERS.fullmatch(name) or (kind_of(name) is ConfigType.UNKNOWN and name[:9] != "listener.")


def broker_id_of(name: str) -> int | None:
    """Return the id that a name is; None for any other name. Kafka reads it as any number, and takes none below 0."""
    return int(name) if whole(0, INT_MAX)(name) else None
