"""List the public names, with the module to import each from, and the module that defines it.

Out: `MODULES` and `ALSO`, from which tools/generate_front.py writes a stub for each public module;
and `lazy_names`, with which a public module loads a name on first use. Must not: import a module of
Odradek at the top, as `import odradek` reads this module and must be fast.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # `typing` takes longer to import than this package
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, ModuleType

MODULES: dict[str, dict[str, str]] = {
    "odradek": {
        "odradek.api.admin": "Admin",
        "odradek.api.asyncio_admin": "AsyncAdmin",
        "odradek.api.asyncio_consumer": "AsyncConsumer",
        "odradek.api.asyncio_producer": "AsyncProducer",
        "odradek.api.asyncio_workers": "AsyncWorkers",
        "odradek.api.client_options": "AdminOptions ConsumerOptions ProducerOptions",
        "odradek.api.consumer": "Consumer",
        "odradek.api.consumer_state": "RebalanceListener",
        "odradek.api.producer": "Producer",
        "odradek.api.workers": "Workers",
        "odradek.clients.admin.admin_arguments": "NewTopic",
        "odradek.clients.consumer.records": """
            ConsumerGroupMetadata ConsumerRecord OffsetAndMetadata OffsetAndTimestamp
        """,
        "odradek.clients.producer.batch": "RecordMetadata",
        "odradek.common.events": "Event",
        "odradek.common.secret": "Secret",
        "odradek.common.types": "TopicPartition",
        "odradek.runtime.hosts.delivery_future": "DeliveryFuture",
        "odradek.runtime.hosts.record_future": "RecordFuture",
        "odradek.runtime.properties": "read_properties",
    },
    "odradek.admin": {
        "odradek.clients.admin.acls": "AclBinding AclBindingFilter",
        "odradek.clients.admin.admin_arguments": "NewPartitions",
        "odradek.clients.admin.api_versions": "ApiVersionRange BrokerApiVersions",
        "odradek.clients.admin.cluster": """
            ClusterDescription FeatureDescription FeatureUpdate FeatureVersions QuorumDescription
            QuorumReplica RaftVoterEndpoint
        """,
        "odradek.clients.admin.cluster_facts": "ClusterClock",
        "odradek.clients.admin.configs": "AlterConfigOp ConfigEntry ConfigResource ConfigSynonym",
        "odradek.clients.admin.examination": "Examination GroupStanding",
        "odradek.clients.admin.group_offsets": "ShareGroupOffset",
        "odradek.clients.admin.groups": "GroupDescription GroupListing GroupMember StreamsTask",
        "odradek.clients.admin.log_dirs": """
            LogDirDescription ReplicaInfo ReplicaLogDir TopicPartitionReplica
        """,
        "odradek.clients.admin.offsets": "OffsetListing",
        "odradek.clients.admin.reachability": "AddressReach Reachability TopicReach TopicStanding",
        "odradek.clients.admin.reassignments": "PartitionReassignment",
        "odradek.clients.admin.transactions": """
            AbortTransactionSpec ActiveProducer HangingTransaction ProducerIdAndEpoch
            TransactionDescription TransactionListing
        """,
        "odradek.clients.admin.users": """
            ClientQuotaEntity DelegationToken ScramCredentialInfo UserScramCredentialDeletion
            UserScramCredentialUpsertion
        """,
        "odradek.clients.descriptions": "BrokerDescription PartitionDescription TopicDescription",
    },
    "odradek.errors": {
        "odradek.clients.consumer.group.assignors": "AssignorError",
        "odradek.clients.consumer.records": """
            LogTruncationError NoOffsetForPartitionError NoSuchOffsetError
        """,
        "odradek.clients.workers.dead_letters": "WorkFailedError",
        "odradek.common.errors": """
            AbortableTransactionError AnswerTooLargeError ArgumentError AuthenticationError
            AuthorizationError BrokerError BufferExhaustedError CertificateExpiredError
            CertificateUntrustedError ClientBrokenError ClientCertificateRequiredError
            ClientClosedError ClientForkedError ClusterIdMismatchError CommitFailedError
            ConfigurationError ConnectionFailedError ConnectionRefusedByPeerError
            ConnectionSetupTimeoutError CorruptRecordError CredentialsRefusedError DisconnectedError
            DnsError ExplainedError FatalTransactionError HostNameMismatchError IllegalStateError
            KafkaError KafkaTimeoutError MalformedMessageError MechanismUnsupportedError
            MissingExtraError NoBrokerAvailableError NoMemoryError NotAProxyError NotKafkaError
            PartitionerError PlaintextPortError ProxyAuthenticationError ProxyError
            ProxyRefusedError RecordTooLargeError ResponseTimeoutError SaslExpectedError
            SaslNotExpectedError ServerNotTrustedError SystemLimitError TlsError TlsPortError
            TlsProtocolError TokenError TokenExpiredError TransactionAbortedError
            UnknownErrorCodeError UnsupportedFeatureError UnsupportedOptionError
            UnsupportedServerError WakeupError
        """,
        "odradek.common.errors.kafka": """
            BrokerIdNotRegisteredError BrokerNotAvailableError ClusterAuthorizationError
            ConcurrentTransactionsError ControllerIdNotRegisteredError
            CoordinatorLoadInProgressError CoordinatorNotAvailableError CorruptMessageError
            DelegationTokenAuthDisabledError DelegationTokenAuthorizationError
            DelegationTokenExpiredError DelegationTokenNotFoundError
            DelegationTokenOwnerMismatchError DelegationTokenRequestNotAllowedError
            DuplicateBrokerRegistrationError DuplicateResourceError DuplicateSequenceNumberError
            DuplicateVoterError ElectionNotNeededError EligibleLeadersNotAvailableError
            FeatureUpdateFailedError FencedInstanceIdError FencedLeaderEpochError
            FencedMemberEpochError FencedStateEpochError FetchSessionIdNotFoundError
            FetchSessionTopicIdError GroupAuthorizationError GroupDeletionFailedError
            GroupIdNotFoundError GroupMaxSizeReachedError GroupSubscribedToTopicError
            IllegalGenerationError IllegalSaslStateError InconsistentClusterIdError
            InconsistentGroupProtocolError InconsistentTopicIdError InconsistentVoterSetError
            IneligibleReplicaError InvalidCommitOffsetSizeError InvalidConfigError
            InvalidFetchSessionEpochError InvalidFetchSizeError InvalidGroupIdError
            InvalidPartitionsError InvalidPrincipalTypeError InvalidProducerEpochError
            InvalidProducerIdMappingError InvalidRecordError InvalidRecordStateError
            InvalidRegistrationError InvalidRegularExpressionError InvalidReplicaAssignmentError
            InvalidReplicationFactorError InvalidRequestError InvalidRequiredAcksError
            InvalidSessionTimeoutError InvalidShareSessionEpochError InvalidTimestampError
            InvalidTopicExceptionError InvalidTransactionTimeoutError InvalidTxnStateError
            InvalidUpdateVersionError InvalidVoterKeyError KafkaStorageError LeaderNotAvailableError
            ListenerNotFoundError LogDirNotFoundError MemberIdRequiredError MessageTooLargeError
            MismatchedEndpointTypeError NetworkExceptionError NewLeaderElectedError
            NoReassignmentInProgressError NonEmptyGroupError NotControllerError NotCoordinatorError
            NotEnoughReplicasAfterAppendError NotEnoughReplicasError NotLeaderOrFollowerError
            OffsetMetadataTooLargeError OffsetMovedToTieredStorageError OffsetNotAvailableError
            OffsetOutOfRangeError OperationNotAttemptedError OutOfOrderSequenceNumberError
            PolicyViolationError PositionOutOfRangeError PreferredLeaderNotAvailableError
            PrincipalDeserializationFailureError ProducerFencedError ReassignmentInProgressError
            RebalanceInProgressError RebootstrapRequiredError RecordListTooLargeError
            ReplicaNotAvailableError RequestTimedOutError ResourceNotFoundError
            SaslAuthenticationFailedError SecurityDisabledError ShareSessionLimitReachedError
            ShareSessionNotFoundError SnapshotNotFoundError StaleBrokerEpochError
            StaleControllerEpochError StaleMemberEpochError StreamsInvalidTopologyEpochError
            StreamsInvalidTopologyError StreamsTopologyDescriptionUpdateFailedError
            StreamsTopologyFencedError TelemetryTooLargeError ThrottlingQuotaExceededError
            TopicAlreadyExistsError TopicAuthorizationError TopicDeletionDisabledError
            TransactionAbortableError TransactionCoordinatorFencedError
            TransactionalIdAuthorizationError TransactionalIdNotFoundError
            UnacceptableCredentialError UnknownControllerIdError UnknownLeaderEpochError
            UnknownMemberIdError UnknownProducerIdError UnknownServerError
            UnknownSubscriptionIdError UnknownTopicIdError UnknownTopicOrPartitionError
            UnreleasedInstanceIdError UnstableOffsetCommitError UnsupportedAssignorError
            UnsupportedCompressionTypeError UnsupportedEndpointTypeError
            UnsupportedForMessageFormatError UnsupportedSaslMechanismError UnsupportedVersionError
            VoterNotFoundError
        """,
        "odradek.common.errors.records": "FetchTooLargeError RecordLimitError",
        "odradek.common.errors.topics": "TopicRecreatedError",
        "odradek.record.arrow": "ArrowSchemaError",
        "odradek.record.sent_columns": "InvalidRowError",
        "odradek.serialization.errors": """
            DeserializationError IncompatibleSchemaError InvalidSchemaError
            RecordDeserializationError RegistryAuthenticationError RegistryUnreachableError
            SchemaNotFoundError SchemaRegistryError SerializationError
        """,
        "odradek.spark.checkpoint_errors": """
            DataLossError MissingTopicError NoProgressError OptionError OutageError
            TimestampRangeError UndecodableValueError
        """,
        "odradek.spark.sink.sink_errors": """
            ReplayError SinkContextError SinkRowError SinkSchemaError SinkWriteError
        """,
        "odradek.spark.values.decoding": "ValueDecodeError",
    },
    "odradek.monitoring": {
        "odradek.clients.explain.explain_group": "GroupExplanation",
        "odradek.clients.explain.explain_producer": "RecordsExplanation TransactionExplanation",
        "odradek.clients.explain.explain_reading": "ReadingExplanation",
        "odradek.clients.explain.explanation": """
            AddressExplanation AttemptExplanation BufferExplanation Explanation MissingExplanation
            OutageExplanation RebootstrapExplanation
        """,
        "odradek.clients.explain.health": "BrokerHealth GroupHealth Health",
        "odradek.clients.metrics.metric": "Metric MetricName Metrics",
        "odradek.monitoring.opentelemetry": "OpenTelemetryMetrics",
        "odradek.monitoring.opentelemetry_traces": "OpenTelemetryTraces",
        "odradek.monitoring.prometheus": "PrometheusCollector prometheus_text",
    },
    "odradek.serialization": {
        "odradek.serialization.avro.columns": "arrow_to_avro avro_to_arrow",
        "odradek.serialization.avro.serializers": "AvroDeserializer AvroSerializer",
        "odradek.serialization.columns.converted_column": "ConvertedColumn",
        "odradek.serialization.context": "MessageField SerializationContext",
        "odradek.serialization.json.columns": "arrow_to_json json_to_arrow plain_json_to_arrow",
        "odradek.serialization.json.serializers": "JSONDeserializer JSONSerializer",
        "odradek.serialization.plain": """
            DoubleDeserializer DoubleSerializer IntegerDeserializer IntegerSerializer
            LongDeserializer LongSerializer PlainJSONDeserializer PlainJSONSerializer
            StringDeserializer StringSerializer
        """,
        "odradek.serialization.protobuf.columns": "arrow_to_protobuf protobuf_to_arrow",
        "odradek.serialization.protobuf.serializers": "ProtobufDeserializer ProtobufSerializer",
        "odradek.serialization.registry.async_client": "AsyncSchemaRegistryClient",
        "odradek.serialization.registry.client": "SchemaRegistryClient",
        "odradek.serialization.registry.schemas": "RegisteredSchema Schema SchemaReference",
        "odradek.serialization.registry.subjects": """
            record_subject_name_strategy topic_record_subject_name_strategy
            topic_subject_name_strategy
        """,
    },
    "odradek.spark": {
        "odradek.spark.driver.progress": "lag",
        "odradek.spark.driver.source": "KafkaDataSource",
        "odradek.spark.sink.foreach_batch": "write_batch",
    },
    "odradek.testing": {
        "odradek.testing.brokers.authority": "Authority KeyAndCertificate",
        "odradek.testing.brokers.broker_set": "TimelineEvent",
        "odradek.testing.brokers.front_door": "FrontDoor",
        "odradek.testing.errors": "ClusterStartError JarsError JavaNotFoundError ToolError",
        "odradek.testing.fake.fake_cluster": "FakeCluster",
        "odradek.testing.java": "ensure_java_environment java_home",
        "odradek.testing.local_cluster": "LocalCluster",
        "odradek.testing.registry": "LocalRegistry",
        "odradek.testing.simulated": "KafkaSimulation",
        "odradek.testing.virtual.async_tests": "loop_factories",
        "odradek.testing.virtual.virtual_loop": "VirtualLoop",
    },
    "odradek.types": {
        "odradek.api.client_options": "ClientOptions",
        "odradek.clients.consumer.group.assignors": "Assignor MemberSubscription RebalanceProtocol",
        "odradek.clients.producer.delivery": "OffsetRange",
        "odradek.common.types": "Address PartitionFunction",
        "odradek.runtime.hosts.delivery_future": "ArrowDeliveryFuture ManyDeliveryFuture",
        "odradek.runtime.hosts.record_future": "ArrowFuture ManyFuture",
    },
    "odradek.workers": {
        "odradek.clients.workers.work_run": "WorkProgress",
    },
}
"""By public module and defining module: the names, separated by spaces."""

ALSO: dict[str, str] = {
    "odradek": """
        ArgumentError AuthenticationError AuthorizationError BufferExhaustedError ClientClosedError
        CommitFailedError ConfigurationError IllegalStateError KafkaError KafkaTimeoutError
        NoBrokerAvailableError ProducerFencedError RecordTooLargeError TransactionAbortedError
        UnknownTopicOrPartitionError
    """,
    "odradek.admin": "Admin AdminOptions AsyncAdmin NewTopic",
    "odradek.serialization": """
        DeserializationError IncompatibleSchemaError InvalidSchemaError RecordDeserializationError
        RegistryAuthenticationError RegistryUnreachableError SchemaNotFoundError SchemaRegistryError
        SerializationError
    """,
    "odradek.workers": "AsyncWorkers WorkFailedError Workers",
}
"""Names that a public module has in addition to the module under which `MODULES` lists them."""

TOP = "odradek"
APART = ("odradek.spark", "odradek.testing")
"""Modules that need an explicit import, and whose names `odradek` has never exported."""
PARTS = [place.partition(".")[2] for place in MODULES if place not in (TOP, *APART)]
"""Public modules that `import odradek` is enough for, as in `odradek.errors.TlsError`."""
_OWN = {
    place: {name: home for home, names in homes.items() for name in names.split()}
    for place, homes in MODULES.items()
}
_DEFINED = {name: home for own in _OWN.values() for name, home in own.items()}
HOMES: dict[str, dict[str, str]] = {
    place: own | {name: _DEFINED[name] for name in ALSO.get(place, "").split()}
    for place, own in _OWN.items()
}
"""By public module: its names, each with the module that defines it."""
PLACES: dict[str, str] = {
    **{name: place for place, own in _OWN.items() for name in own},
    **dict.fromkeys(HOMES[TOP], TOP),
}
"""By public name: the module to import it from; names in `ALSO` are in another module, too."""
MOVED: dict[str, str] = {
    name: place for name, place in PLACES.items() if place not in (TOP, *APART)
}
"""Deprecated names of `odradek`, each with the module that has it now (docs/stability.md)."""
REMOVED_IN = "0.5"
"""The version in which `odradek` will no longer have the names in `MOVED`."""


def _load(home: str) -> ModuleType:
    """Import a module; raise MissingExtraError if it needs a package that isn't installed."""
    try:
        return import_module(home)
    except ModuleNotFoundError:
        from odradek.common.extras import require_extra

        require_extra(home)
        raise


def lazy_names(
    module: str, load: Callable[[str], ModuleType] = _load
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a public module.

    `load` imports the module that defines a name.
    """
    homes = HOMES[module]
    namespace = sys._getframe(1).f_globals  # noqa: SLF001  # the module may leave sys.modules
    parts = PARTS if module == TOP else ()

    def get(name: str) -> object:
        if name in homes:
            value: object = getattr(load(homes[name]), name)
            namespace[name] = value
            return value
        if name in parts:
            return import_module(f"{module}.{name}")
        caller = sys._getframe(1)  # noqa: SLF001  # `inspect` would read the sources
        # `from odradek import X` calls this twice: first the import system, to find submodules,
        # then the importing line, which has to be reported.
        searching = caller.f_code.co_name == "_handle_fromlist"
        if module == TOP and name in MOVED:
            if not searching:
                from warnings import warn

                text = f"import {name} from {MOVED[name]}; {module}.{name} will be removed in "
                warn(text + REMOVED_IN, DeprecationWarning, stacklevel=2)
            return getattr(import_module(MOVED[name]), name)
        if searching or name.startswith("_"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        from odradek.common.options.migration_hints import missing_name

        if module == TOP and f"{TOP}.{name}" in (*APART, f"{TOP}.compat"):
            raise AttributeError(f"write import {module}.{name} first: it isn't loaded by itself")
        places = PLACES | dict.fromkeys(PARTS, TOP) | dict.fromkeys(homes, module)
        raise missing_name(module, name, places, imported=_is_import(caller))

    return [*homes], get, lambda: sorted([*namespace["__all__"], *parts])


def _is_import(frame: FrameType) -> bool:
    """Return whether a frame is executing `from module import name`."""
    from opcode import opmap

    return frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]
