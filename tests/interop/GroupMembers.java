import java.io.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of groups, run by lines on standard input: "start NAME TOPIC,TOPIC KEY=VALUE ...", "hold NAME MILLISECONDS"
 * for a batch that takes this long, and "stop NAME". What they are assigned and what they read is written to standard
 * output, one line each: "NAME assigned TOPIC-0 TOPIC-1", "NAME revoked TOPIC-0", "NAME lost TOPIC-0",
 * "NAME read TOPIC-PARTITION OFFSET", "NAME held", "NAME stopped", "NAME error TEXT".
 */
public class GroupMembers {
    static synchronized void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static String names(Collection<TopicPartition> partitions) {
        return partitions.stream().map(p -> " " + p).collect(Collectors.joining());
    }

    static class Member extends Thread implements ConsumerRebalanceListener {
        final String name, topics;
        final KafkaConsumer<byte[], byte[]> consumer;
        volatile boolean stopping;
        volatile long hold;

        Member(String name, String topics, Properties properties) {
            this.name = name;
            this.topics = topics;
            consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell(name + " assigned" + names(partitions));
        }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            tell(name + " revoked" + names(partitions));
        }

        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            tell(name + " lost" + names(partitions));
        }

        public void run() {
            try (consumer) {
                consumer.subscribe(List.of(topics.split(",")), this);
                while (!stopping) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100)))
                        tell(name + " read " + record.topic() + "-" + record.partition() + " " + record.offset());
                    if (hold > 0) {
                        Thread.sleep(hold);
                        hold = 0;
                        tell(name + " held");
                    }
                }
            } catch (Exception e) {
                tell(name + " error " + e);
            }
            tell(name + " stopped");
        }
    }

    public static void main(String[] arguments) throws IOException {
        Map<String, Member> members = new ConcurrentHashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            if (words[0].equals("hold")) {
                members.get(words[1]).hold = Long.parseLong(words[2]);
                continue;
            }
            if (words[0].equals("stop")) {
                members.remove(words[1]).stopping = true;
                continue;
            }
            Properties properties = new Properties();
            for (String word : Arrays.asList(words).subList(3, words.length))
                properties.put(word.substring(0, word.indexOf('=')), word.substring(word.indexOf('=') + 1));
            Member member = new Member(words[1], words[2], properties);
            member.setDaemon(true);
            members.put(words[1], member);
            member.start();
        }
    }
}
