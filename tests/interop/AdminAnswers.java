import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;

/**
 * What Java's Admin says of a cluster: "AdminAnswers BOOTSTRAP TOPIC GROUP ID". One line for each question and thing,
 * a name and what was said of it with tabs between, as `test_admin_answers.py` writes ours.
 */
public class AdminAnswers {
    static void tell(String name, Object... words) {
        StringBuilder line = new StringBuilder(name);
        for (Object word : words)
            line.append('\t').append(word);
        System.out.println(line);
    }

    static String ids(Collection<Node> nodes) {
        return nodes.stream().map(Node::id).map(String::valueOf).collect(Collectors.joining(" "));
    }

    static String places(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::toString).sorted().collect(Collectors.joining(" "));
    }

    static void topics(Admin admin, String topic) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        tell("cluster", cluster.clusterId().get());
        for (Node node : cluster.nodes().get())
            tell("broker", node.id(), node.host(), node.port());
        TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        Uuid id = described.topicId();
        tell("topic", new UUID(id.getMostSignificantBits(), id.getLeastSignificantBits()), described.isInternal());
        for (TopicPartitionInfo p : described.partitions())
            tell("partition", p.partition(), p.leader().id(), ids(p.replicas()), ids(p.isr()));
        for (String name : admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get())
            tell("name", name);
        List<ConfigResource> resources = List.of(
                new ConfigResource(ConfigResource.Type.TOPIC, topic),
                new ConfigResource(ConfigResource.Type.BROKER, "0"),
                new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "0"),
                new ConfigResource(ConfigResource.Type.CLIENT_METRICS, topic));
        DescribeConfigsOptions all = new DescribeConfigsOptions().includeSynonyms(true);
        admin.describeConfigs(resources, all).all().get().forEach((resource, config) -> {
            for (ConfigEntry e : config.entries())
                tell("option", resource.type(), resource.name(), e.name(), e.value(), e.source(), e.isReadOnly(),
                        e.isSensitive(), e.type(), e.synonyms().stream().map(s -> s.source().name())
                                .collect(Collectors.joining(" ")));
        });
        for (ConfigResource resource : admin.listConfigResources().all().get())
            tell("resource", resource.type(), resource.name());
    }

    static void groups(Admin admin, String topic, String group) throws Exception {
        for (GroupListing g : admin.listGroups().all().get())
            if (g.groupId().startsWith(group))
                tell("group", g.groupId(), g.protocol(), g.groupState().get(), g.type().get());
        List<String> groups = List.of(group + "-classic", group + "-consumer");
        admin.describeConsumerGroups(groups).all().get().forEach((name, g) -> {
            tell("described", name, g.type(), g.groupState(), g.partitionAssignor());
            for (MemberDescription m : g.members())
                tell("member", name, m.consumerId(), m.clientId(), m.host(),
                        places(m.assignment().topicPartitions()));
        });
        admin.listConsumerGroupOffsets(group + "-idle").partitionsToOffsetAndMetadata().get().forEach((p, o) ->
                tell("committed", p, o.offset(), o.metadata(), o.leaderEpoch().orElse(-1)));
        TopicPartition first = new TopicPartition(topic, 0);
        Map<String, OffsetSpec> specs = new LinkedHashMap<>();
        specs.put("LATEST", OffsetSpec.latest());
        specs.put("EARLIEST", OffsetSpec.earliest());
        specs.put("MAX_TIMESTAMP", OffsetSpec.maxTimestamp());
        specs.put("EARLIEST_LOCAL", OffsetSpec.earliestLocal());
        specs.put("1", OffsetSpec.forTimestamp(1));
        for (var spec : specs.entrySet()) {
            var found = admin.listOffsets(Map.of(first, spec.getValue())).partitionResult(first).get();
            tell("offset", spec.getKey(), found.offset(), found.timestamp(), found.leaderEpoch().orElse(-1));
        }
    }

    static void cluster(Admin admin, String topic) throws Exception {
        FeatureMetadata features = admin.describeFeatures().featureMetadata().get();
        features.supportedFeatures().forEach((name, range) -> {
            FinalizedVersionRange level = features.finalizedFeatures().get(name);
            tell("feature", name, range.minVersion(), range.maxVersion(), level == null ? 0 : level.maxVersionLevel());
        });
        QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
        tell("quorum", quorum.leaderId(), quorum.leaderEpoch());
        for (QuorumInfo.ReplicaState voter : quorum.voters())
            tell("voter", voter.replicaId());
        admin.describeLogDirs(List.of(0)).allDescriptions().get().forEach((broker, directories) ->
                directories.forEach((path, directory) -> {
                    tell("directory", broker, path, directory.totalBytes().orElse(-1));
                    directory.replicaInfos().forEach((p, r) -> {
                        if (p.topic().equals(topic))
                            tell("replica", broker, p, r.size(), r.offsetLag(), r.isFuture());
                    });
                }));
        tell("moving", admin.listPartitionReassignments().reassignments().get().size());
    }

    static void transactions(Admin admin, String topic, String id) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        for (ProducerState s : admin.describeProducers(List.of(first)).partitionResult(first).get().activeProducers())
            tell("producer", s.producerId(), s.producerEpoch(), s.lastSequence(), s.lastTimestamp(),
                    s.coordinatorEpoch().orElse(-1), s.currentTransactionStartOffset().orElse(-1));
        for (TransactionListing t : admin.listTransactions().all().get())
            if (t.transactionalId().equals(id))
                tell("transaction", t.transactionalId(), t.producerId(), t.state());
        TransactionDescription t = admin.describeTransactions(List.of(id)).all().get().get(id);
        tell("state", t.state(), t.producerId(), t.producerEpoch(), t.transactionTimeoutMs(),
                t.transactionStartTimeMs().orElse(-1), places(t.topicPartitions()));
        admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((entity, quotas) ->
                tell("quota", new TreeMap<>(entity.entries()), new TreeMap<>(quotas)));
    }

    public static void main(String[] arguments) throws Exception {
        for (var method : Admin.class.getMethods())
            if (!java.lang.reflect.Modifier.isStatic(method.getModifiers()))
                tell("method", method.getName());
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            topics(admin, arguments[1]);
            groups(admin, arguments[1], arguments[2]);
            cluster(admin, arguments[1]);
            transactions(admin, arguments[1], arguments[3]);
        }
    }
}
