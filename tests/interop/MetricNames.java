import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

/**
 * What Java's clients measure: "MetricNames BOOTSTRAP TOPIC RECORDS GROUP MS". Writes that many records to partition 0, reads
 * them as a group's member, commits, and lists topics; each client waits so many milliseconds before it is closed. One line
 * for each metric: group, name, tags, value, with tabs.
 */
public class MetricNames {
    static void tell(Map<MetricName, ? extends Metric> metrics) {
        metrics.forEach((name, metric) -> {
            StringJoiner tags = new StringJoiner(",");
            new TreeMap<>(name.tags()).forEach((tag, value) -> tags.add(tag + "=" + value));
            System.out.println(String.join("\t", name.group(), name.name(), tags.toString(), "" + metric.metricValue()));
        });
    }

    static double gauge(Producer<?, ?> producer, String wanted) {
        for (Map.Entry<MetricName, ? extends Metric> one : producer.metrics().entrySet())
            if (one.getKey().name().equals(wanted))
                return (Double) one.getValue().metricValue();
        throw new NoSuchElementException(wanted);
    }

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], topic = arguments[1], group = arguments[3];
        int records = Integer.parseInt(arguments[2]), pause = Integer.parseInt(arguments[4]);
        Map<String, Object> config = Map.of("bootstrap.servers", servers, "client.id", "me");
        byte[] value = new byte[100];
        try (Producer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int n = 0; n < records; n++)
                producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
            // A batch's memory is given back just after its futures are done.
            for (int n = 0; n < 100 && gauge(producer, "buffer-available-bytes") < gauge(producer, "buffer-total-bytes"); n++)
                Thread.sleep(50);
            tell(producer.metrics());
            Thread.sleep(pause);
        }
        Map<String, Object> reading = new HashMap<>(config);
        reading.putAll(Map.of("group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", false));
        try (Consumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            for (int read = 0; read < records; )
                read += consumer.poll(Duration.ofSeconds(1)).count();
            consumer.commitSync();
            consumer.poll(Duration.ofMillis(600));
            for (long end = System.currentTimeMillis() + pause; System.currentTimeMillis() < end; )
                consumer.poll(Duration.ofMillis(200));
            tell(consumer.metrics());
        }
        try (Admin admin = Admin.create(config)) {
            admin.listTopics().names().get();
            tell(admin.metrics());
        }
    }
}
