import java.io.*;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.*;

/** Reads groups from standard input and writes the assignments of Kafka's own assignors. */
public class AssignorVectors {
    static List<TopicPartition> partitions(String text) {
        List<TopicPartition> found = new ArrayList<>();
        if (!text.equals("-"))
            for (String item : text.split(",")) {
                int at = item.lastIndexOf('-');
                found.add(new TopicPartition(item.substring(0, at), Integer.parseInt(item.substring(at + 1))));
            }
        return found;
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null) return "null";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out));
        List<PartitionInfo> infos = new ArrayList<>();
        Map<String, Node> nodes = new HashMap<>();
        Map<String, Subscription> members = new LinkedHashMap<>();
        ConsumerPartitionAssignor assignor = null;
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "case":
                    assignor = assignor(words[1]);
                    infos.clear(); members.clear();
                    break;
                case "partition": // topic number racks
                    Node[] replicas = words[3].equals("-") ? new Node[0]
                        : Arrays.stream(words[3].split(",")).map(r -> nodes.computeIfAbsent(r, k -> new Node(nodes.size(), "h", 1, r))).toArray(Node[]::new);
                    infos.add(new PartitionInfo(words[1], Integer.parseInt(words[2]), replicas.length == 0 ? Node.noNode() : replicas[0], replicas, replicas));
                    break;
                case "member": { // id topics generation rack instance owned last
                    int generation = Integer.parseInt(words[3]);
                    List<TopicPartition> last = partitions(words[7]);
                    ConsumerPartitionAssignor its = assignor(assignor.name());
                    if (generation >= 0)
                        its.onAssignment(new Assignment(last), new ConsumerGroupMetadata("g", generation, words[1], Optional.empty()));
                    Set<String> topics = new TreeSet<>(Arrays.asList(words[2].split(",")));
                    Subscription said = new Subscription(new ArrayList<>(topics), its.subscriptionUserData(topics), partitions(words[6]), generation,
                        words[4].equals("-") ? Optional.empty() : Optional.of(words[4]));
                    ByteBuffer bytes = ConsumerProtocol.serializeSubscription(said);
                    out.println("said " + words[1] + " " + hex(bytes));
                    Subscription heard = ConsumerProtocol.deserializeSubscription(bytes);
                    if (!words[5].equals("-")) heard.setGroupInstanceId(Optional.of(words[5]));
                    members.put(words[1], heard);
                    break;
                }
                default: {
                    Cluster cluster = new Cluster("c", nodes.values(), infos, Set.of(), Set.of());
                    Map<String, Assignment> given = assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
                    for (String member : members.keySet()) {
                        List<TopicPartition> got = new ArrayList<>(given.get(member).partitions());
                        got.sort(Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition));
                        out.println("given " + member + " " + hex(ConsumerProtocol.serializeAssignment(new Assignment(got))));
                    }
                    out.println("end");
                }
            }
        }
        out.flush();
    }
}
