"""Table of public names: what can be imported from `odradek`, and which module contains it.

Out: `HOMES`, from a name to its module, for the lazy `odradek/__init__.py`. tools/generate_front.py
writes the stub beside it, `odradek/__init__.pyi`, from the same table. Must not: import anything of
this package, as `import odradek` reads this module and must be fast.
"""

from __future__ import annotations

MODULES: dict[str, str] = {
    "odradek.api.admin": "Admin",
    "odradek.api.asyncio_admin": "AsyncAdmin",
    "odradek.api.asyncio_consumer": "AsyncConsumer",
    "odradek.api.asyncio_producer": "AsyncProducer",
    "odradek.api.asyncio_workers": "AsyncWorkers",
    "odradek.api.client_options": "AdminOptions ClientOptions ConsumerOptions ProducerOptions",
    "odradek.api.consumer": "Consumer",
    "odradek.clients.explain.explanation": """
        AddressExplanation AttemptExplanation BufferExplanation Explanation
        MissingExplanation OutageExplanation RebootstrapExplanation
    """,
    "odradek.clients.explain.explain_group": "GroupExplanation",
    "odradek.clients.explain.health": "BrokerHealth GroupHealth Health",
    "odradek.clients.metrics.metric": "Metric MetricName Metrics",
    "odradek.clients.explain.explain_producer": "RecordsExplanation TransactionExplanation",
    "odradek.clients.explain.explain_reading": "ReadingExplanation",
    "odradek.api.consumer_state": "RebalanceListener",
    "odradek.api.producer": "Producer",
    "odradek.api.workers": "Workers",
    "odradek.clients.workers.dead_letters": "WorkFailedError",
    "odradek.clients.workers.work_run": "WorkProgress",
    "odradek.runtime.properties": "read_properties",
    "odradek.runtime.hosts.delivery_future": """
        ArrowDeliveryFuture DeliveryFuture ManyDeliveryFuture
    """,
    "odradek.runtime.hosts.record_future": "ArrowFuture ManyFuture RecordFuture",
    "odradek.clients.admin.acls": "AclBinding AclBindingFilter",
    "odradek.clients.admin.admin_arguments": "NewPartitions NewTopic",
    "odradek.clients.admin.api_versions": "ApiVersionRange BrokerApiVersions",
    "odradek.clients.admin.cluster_questions": "ClusterClock",
    "odradek.clients.admin.examination": "Examination GroupStanding",
    "odradek.clients.admin.reachability": "AddressReach Reachability TopicReach TopicStanding",
    "odradek.clients.admin.cluster": """
        ClusterDescription FeatureDescription FeatureUpdate FeatureVersions QuorumDescription
        QuorumReplica RaftVoterEndpoint
    """,
    "odradek.clients.admin.configs": """
        AlterConfigOp ConfigEntry ConfigResource ConfigSynonym
    """,
    "odradek.clients.admin.group_offsets": "ShareGroupOffset",
    "odradek.clients.admin.groups": "GroupDescription GroupListing GroupMember StreamsTask",
    "odradek.clients.admin.log_dirs": """
        LogDirDescription ReplicaInfo ReplicaLogDir TopicPartitionReplica
    """,
    "odradek.clients.admin.offsets": "OffsetListing",
    "odradek.clients.admin.reassignments": "PartitionReassignment",
    "odradek.clients.admin.transactions": """
        AbortTransactionSpec ActiveProducer HangingTransaction ProducerIdAndEpoch
        TransactionDescription TransactionListing
    """,
    "odradek.clients.admin.users": """
        ClientQuotaEntity DelegationToken ScramCredentialInfo
        UserScramCredentialDeletion UserScramCredentialUpsertion
    """,
    "odradek.clients.consumer.group.assignors": """
        Assignor AssignorError MemberSubscription RebalanceProtocol
    """,
    "odradek.clients.consumer.records": """
        ConsumerGroupMetadata ConsumerRecord LogTruncationError NoOffsetForPartitionError
        NoSuchOffsetError OffsetAndMetadata OffsetAndTimestamp
    """,
    "odradek.clients.descriptions": "BrokerDescription PartitionDescription TopicDescription",
    "odradek.clients.producer.batch": "RecordMetadata",
    "odradek.clients.producer.delivery": "OffsetRange",
    "odradek.common.errors": """
        AbortableTransactionError AnswerTooLargeError ArgumentError AuthenticationError
        AuthorizationError BrokerError BufferExhaustedError CertificateExpiredError
        CertificateUntrustedError ClientBrokenError ClientCertificateRequiredError
        ClientClosedError ClientForkedError ClusterIdMismatchError CommitFailedError
        ConfigurationError ConnectionFailedError ConnectionRefusedByPeerError
        ConnectionSetupTimeoutError CorruptRecordError CredentialsRefusedError
        DisconnectedError DnsError ExplainedError FatalTransactionError
        HostNameMismatchError IllegalStateError KafkaError KafkaTimeoutError
        MalformedMessageError MechanismUnsupportedError MissingExtraError NoBrokerAvailableError
        NotAProxyError NotKafkaError PartitionerError PlaintextPortError
        ProxyAuthenticationError ProxyError ProxyRefusedError RecordTooLargeError
        ResponseTimeoutError SaslExpectedError SaslNotExpectedError ServerNotTrustedError
        SystemLimitError TlsError TlsPortError TlsProtocolError TokenError TokenExpiredError
        TransactionAbortedError UnknownErrorCodeError UnsupportedFeatureError WakeupError
    """,
    "odradek.common.events": "Event",
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
        InvalidUpdateVersionError InvalidVoterKeyError KafkaStorageError
        LeaderNotAvailableError ListenerNotFoundError LogDirNotFoundError
        MemberIdRequiredError MessageTooLargeError MismatchedEndpointTypeError
        NetworkExceptionError NewLeaderElectedError NoReassignmentInProgressError
        NonEmptyGroupError NotControllerError NotCoordinatorError
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
        UnsupportedForMessageFormatError UnsupportedSaslMechanismError
        UnsupportedVersionError VoterNotFoundError
    """,
    "odradek.common.errors.records": "FetchTooLargeError RecordLimitError",
    "odradek.common.secret": "Secret",
    "odradek.common.errors.topics": "TopicRecreatedError",
    "odradek.common.types": "Address PartitionFunction TopicPartition",
    "odradek.monitoring.opentelemetry": "OpenTelemetryMetrics",
    "odradek.monitoring.opentelemetry_traces": "OpenTelemetryTraces",
    "odradek.monitoring.prometheus": "PrometheusCollector prometheus_text",
    "odradek.record.arrow": "ArrowSchemaError",
    "odradek.record.sent_columns": "InvalidRowError",
    "odradek.serialization.registry.async_client": "AsyncSchemaRegistryClient",
    "odradek.serialization.avro.serializers": "AvroDeserializer AvroSerializer",
    "odradek.serialization.avro.columns": "arrow_to_avro avro_to_arrow",
    "odradek.serialization.columns.converted_column": "ConvertedColumn",
    "odradek.serialization.json.columns": "arrow_to_json json_to_arrow plain_json_to_arrow",
    "odradek.serialization.protobuf.columns": "arrow_to_protobuf protobuf_to_arrow",
    "odradek.serialization.context": "MessageField SerializationContext",
    "odradek.serialization.errors": """
        DeserializationError IncompatibleSchemaError InvalidSchemaError
        RecordDeserializationError RegistryAuthenticationError RegistryUnreachableError
        SchemaNotFoundError SchemaRegistryError SerializationError
    """,
    "odradek.serialization.json.serializers": "JSONDeserializer JSONSerializer",
    "odradek.serialization.plain": """
        DoubleDeserializer DoubleSerializer IntegerDeserializer IntegerSerializer
        LongDeserializer LongSerializer PlainJSONDeserializer PlainJSONSerializer
        StringDeserializer StringSerializer
    """,
    "odradek.serialization.protobuf.serializers": "ProtobufDeserializer ProtobufSerializer",
    "odradek.serialization.registry.client": "SchemaRegistryClient",
    "odradek.serialization.registry.schemas": "RegisteredSchema Schema SchemaReference",
    "odradek.serialization.registry.subjects": """
        record_subject_name_strategy topic_record_subject_name_strategy
        topic_subject_name_strategy
    """,
    "odradek.spark.problems": """
        DataLossError MissingTopicError NoProgressError OptionError OutageError
        TimestampRangeError UndecodableValueError
    """,
    "odradek.spark.sink.sink_problems": """
        ReplayError SinkContextError SinkRowError SinkSchemaError SinkWriteError
    """,
    "odradek.spark.values.decoding": "ValueDecodeError",
}
"""From a module to its public names, separated by blanks."""

HOMES: dict[str, str] = {name: module for module in MODULES for name in MODULES[module].split()}
"""From a public name to its module."""
