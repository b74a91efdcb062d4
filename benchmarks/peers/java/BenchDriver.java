import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Driver of the benchmarks for the Java client: one process, one measurement, one JSON line.
 *
 * <p>In: {@code MODE --bootstrap … --topic …} and a pool of records (for each the lengths of key and
 * value, 4 bytes big endian, then both). Out: one line on standard output: records, bytes, seconds,
 * CPU seconds, memory, version. The clock starts before the client is created; the JVM already runs.
 */
public final class BenchDriver {
    private final Map<String, String> options = new HashMap<>();
    private final Map<String, Object> found = new HashMap<>();
    private long begin;
    private double cpu;
    private volatile double first;

    /** Reads the properties file, because the class with the version has a new package from 4.4 on. */
    private static String version() throws java.io.IOException {
        java.util.Properties told = new java.util.Properties();
        try (java.io.InputStream in = KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            told.load(in);
        }
        return told.getProperty("version");
    }

    public static void main(String[] arguments) throws Exception {
        BenchDriver driver = new BenchDriver();
        for (int i = 1; i + 1 < arguments.length; i += 2) {
            driver.options.put(arguments[i].substring(2), arguments[i + 1]);
        }
        switch (arguments[0]) {
            case "consume" -> driver.consume();
            case "produce" -> driver.produce();
            case "round-trip" -> driver.roundTrip();
            case "start" -> driver.start();
            case "seek" -> driver.seek();
            case "metadata" -> driver.metadata();
            default -> throw new IllegalArgumentException("unknown mode " + arguments[0]);
        }
        driver.found.put("library", "java");
        driver.found.put("mode", arguments[0]);
        driver.found.put("version", version());
        driver.found.put("peak_rss", status("VmHWM"));
        driver.say();
        Runtime.getRuntime().halt(0);
    }

    private Map<String, Object> config() {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", options.get("bootstrap"));
        if (options.containsKey("ca")) {
            config.put("security.protocol", "SSL");
            config.put("ssl.truststore.type", "PEM");
            config.put("ssl.truststore.location", options.get("ca"));
        }
        return config;
    }

    private KafkaConsumer<byte[], byte[]> reader() {
        Map<String, Object> config = config();
        config.put("max.poll.records", 10_000);
        config.put("max.partition.fetch.bytes", 8 << 20);
        config.put("fetch.max.bytes", 50 << 20);
        config.put("receive.buffer.bytes", 1 << 20);
        config.put("enable.auto.commit", false);
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<TopicPartition> partitions = new ArrayList<>();
        for (int p = 0; p < number("partitions", 4); p++) {
            partitions.add(new TopicPartition(options.get("topic"), p));
        }
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        return consumer;
    }

    private KafkaProducer<byte[], byte[]> writer(Map<String, Object> config) {
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void consume() {
        long wanted = number("records", 1000);
        clock();
        KafkaConsumer<byte[], byte[]> consumer = reader();
        long records = 0;
        long bytes = 0;
        while (records < wanted) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                if (records++ == 0) {
                    first = seconds();
                }
                bytes += record.key().length + record.value().length;
            }
        }
        stop("objects, CRC checked", records, bytes);
    }

    private void produce() throws IOException {
        List<byte[][]> pool = pool();
        long records = number("records", 1000);
        Map<String, Object> config = config();
        config.put("acks", "all");
        config.put("enable.idempotence", true);
        config.put("linger.ms", 5);
        config.put("batch.size", (int) number("batch-size", 128 << 10));
        config.put("buffer.memory", 128L << 20);
        config.put("compression.type", options.getOrDefault("codec", "none"));
        AtomicReference<Exception> failure = new AtomicReference<>();
        AtomicLong acknowledged = new AtomicLong();
        long bytes = 0;
        clock();
        KafkaProducer<byte[], byte[]> producer = writer(config);
        Callback told = (metadata, error) -> {
            if (error != null) {
                failure.set(error);
            } else if (acknowledged.incrementAndGet() == 1) {
                first = seconds();
            }
        };
        for (long i = 0; i < records; i++) {
            byte[][] record = pool.get((int) (i % pool.size()));
            bytes += record[0].length + record[1].length;
            producer.send(new ProducerRecord<>(options.get("topic"), record[0], record[1]), told);
        }
        producer.flush();
        if (failure.get() != null || acknowledged.get() != records) {
            throw new IllegalStateException("not all records were acknowledged", failure.get());
        }
        stop("a callback per record", records, bytes);
    }

    /** Sends one record after the other at a fixed rate; measures from send() until a consumer has it. */
    private void roundTrip() throws InterruptedException {
        int records = (int) number("records", 1000);
        long every = (long) (1e9 / Double.parseDouble(options.getOrDefault("rate", "100")));
        BlockingQueue<Long> arrived = new ArrayBlockingQueue<>(records);
        Thread reading = new Thread(() -> {
            KafkaConsumer<byte[], byte[]> consumer = reader();
            while (true) {
                ConsumerRecords<byte[], byte[]> some = consumer.poll(Duration.ofSeconds(1));
                long now = System.nanoTime();
                some.forEach(record -> arrived.add(now));
            }
        });
        reading.setDaemon(true);
        reading.start();
        Map<String, Object> config = config();
        config.put("linger.ms", 0);
        KafkaProducer<byte[], byte[]> producer = writer(config);
        double[] times = new double[records];
        long due = System.nanoTime();
        for (int i = 0; i < records; i++, due += every) {
            TimeUnit.NANOSECONDS.sleep(due - System.nanoTime());
            long sent = System.nanoTime();
            producer.send(new ProducerRecord<>(options.get("topic"), "ping".getBytes(StandardCharsets.UTF_8)));
            times[i] = (arrived.take() - sent) / 1e6;
            due = Math.max(due, System.nanoTime() - every);
        }
        double[] counted = Arrays.copyOfRange(times, records / 10, records); // without the warm-up
        Arrays.sort(counted);
        found.put("records", counted.length);
        found.put("p50_ms", counted[(int) (0.5 * (counted.length - 1))]);
        found.put("p99_ms", counted[(int) (0.99 * (counted.length - 1))]);
    }

    private void start() throws Exception {
        clock();
        KafkaProducer<byte[], byte[]> producer = writer(config());
        producer.send(new ProducerRecord<>(options.get("topic"), "first".getBytes(StandardCharsets.UTF_8))).get();
        found.put("first_acknowledged_ms", seconds() * 1000);
        clock();
        KafkaConsumer<byte[], byte[]> consumer = reader();
        while (consumer.poll(Duration.ofMillis(100)).isEmpty()) { }
        found.put("first_read_ms", seconds() * 1000);
        for (String protocol : List.of("classic", "consumer")) {
            clock();
            Map<String, Object> config = config();
            config.put("auto.offset.reset", "earliest");
            config.put("group.id", options.get("topic") + "-" + protocol + "-java-" + ProcessHandle.current().pid());
            config.put("group.protocol", protocol);
            KafkaConsumer<byte[], byte[]> member =
                    new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            member.subscribe(List.of(options.get("topic")));
            while (member.poll(Duration.ofMillis(100)).isEmpty()) { }
            found.put("first_in_" + protocol + "_group_ms", seconds() * 1000);
        }
    }

    /** Measures calls of a consumer whose fetch the broker holds: peers/python/moving.py. */
    private void seek() {
        KafkaConsumer<byte[], byte[]> consumer = reader();
        TopicPartition first = new TopicPartition(options.get("topic"), 0);
        long[] pauses = Arrays.stream(options.get("pauses").split(",")).mapToLong(Long::parseLong).toArray();
        List<Double> seeks = new ArrayList<>();
        List<Double> resumes = new ArrayList<>();
        List<Double> ends = new ArrayList<>();
        for (long left = number("records", 2); left > 0; ) {
            left -= consumer.poll(Duration.ofSeconds(1)).count();
        }
        for (long pause : pauses) {
            rest(consumer, pause);
            clock();
            consumer.seek(first, 0);
            while (consumer.poll(Duration.ofSeconds(1)).isEmpty()) { }
            seeks.add(seconds() * 1000);
        }
        for (long pause : pauses) {
            rest(consumer, pause);
            clock();
            long end = consumer.endOffsets(List.of(first)).get(first);
            ends.add(seconds() * 1000);
            if (end != 1) {
                throw new IllegalStateException("an end offset of " + end);
            }
        }
        for (long pause : pauses) {
            consumer.pause(List.of(first));
            consumer.seek(first, 0);
            rest(consumer, 500 + pause); // longer than fetch.max.wait.ms: no held fetch includes the partition then
            clock();
            consumer.resume(List.of(first));
            while (consumer.poll(Duration.ofSeconds(1)).isEmpty()) { }
            resumes.add(seconds() * 1000);
        }
        found.put("seek_ms", seeks.stream().sorted().toList().get(pauses.length / 2));
        found.put("resume_ms", resumes.stream().sorted().toList().get(pauses.length / 2));
        found.put("end_offsets_ms", ends.stream().sorted().toList().get(pauses.length / 2));
    }

    /** Polls for this time and expects no record. */
    private static void rest(KafkaConsumer<byte[], byte[]> consumer, long milliseconds) {
        long until = System.nanoTime() + milliseconds * 1_000_000;
        for (long left = milliseconds; left > 0; left = (until - System.nanoTime()) / 1_000_000) {
            if (!consumer.poll(Duration.ofMillis(Math.min(left, 50))).isEmpty()) {
                throw new IllegalStateException("there was a record that hadn't been asked for");
            }
        }
    }

    private List<byte[][]> pool() throws IOException {
        ByteBuffer text = ByteBuffer.wrap(Files.readAllBytes(Path.of(options.get("pool"))));
        List<byte[][]> records = new ArrayList<>();
        while (text.hasRemaining()) {
            byte[] key = new byte[text.getInt()];
            byte[] value = new byte[text.getInt()];
            text.get(key).get(value);
            records.add(new byte[][] {key, value});
        }
        return records;
    }

    private long number(String option, long otherwise) {
        return Long.parseLong(options.getOrDefault(option, Long.toString(otherwise)));
    }

    private void clock() {
        found.put("rss_before", status("VmRSS"));
        begin = System.nanoTime();
        cpu = cpuSeconds();
    }

    private double seconds() {
        return (System.nanoTime() - begin) / 1e9;
    }

    private void stop(String delivers, long records, long bytes) {
        found.put("seconds", seconds());
        found.put("cpu", cpuSeconds() - cpu);
        found.put("first", first);
        found.put("delivers", delivers);
        found.put("records", records);
        found.put("bytes", bytes);
    }

    /** Decodes a response into a client without metadata, six times, then into one that has it. */
    private void metadata() throws IOException {
        byte[] answer = Files.readAllBytes(Path.of(options.get("answer")));
        long before = status("VmRSS");
        List<Double> wall = new ArrayList<>();
        List<Double> used = new ArrayList<>();
        org.apache.kafka.clients.Metadata known = null;
        for (int n = 0; n < 7; n++) {
            if (n < 6) {
                known = new org.apache.kafka.clients.Metadata(100, 1000, 300_000,
                    new org.apache.kafka.common.utils.internals.LogContext(),
                    new org.apache.kafka.common.internals.ClusterResourceListeners());
                known.bootstrap(List.of(new java.net.InetSocketAddress("127.0.0.1", 9092)));
            }
            double cpuBefore = cpuSeconds();
            long begun = System.nanoTime();
            known.update(0, org.apache.kafka.common.requests.MetadataResponse.parse(
                new org.apache.kafka.common.protocol.ByteBufferAccessor(ByteBuffer.wrap(answer)), (short) 13),
                false, 1000L * n);
            wall.add((System.nanoTime() - begun) / 1e6);
            used.add((cpuSeconds() - cpuBefore) * 1e3);
            if (n == 0) {
                found.put("rss_growth", status("VmHWM") - before);
            }
        }
        found.put("first_answer_ms", wall.get(0));
        found.put("same_answer_ms", wall.get(6));
        found.put("answer_ms", wall.subList(1, 6).stream().sorted().toList().get(2));
        found.put("answer_cpu_ms", used.subList(1, 6).stream().sorted().toList().get(2));
    }

    private static double cpuSeconds() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    /** A line of /proc/self/status in bytes: VmHWM is the peak, VmRSS the current value. */
    private static long status(String name) {
        try {
            for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
                if (line.startsWith(name + ":")) {
                    return Long.parseLong(line.replaceAll("[^0-9]", "")) * 1024;
                }
            }
        } catch (IOException error) {
            return 0; // a system without /proc
        }
        return 0;
    }

    private void say() {
        StringBuilder line = new StringBuilder();
        found.forEach((name, value) -> {
            String text = value instanceof Number ? value.toString() : '"' + value.toString() + '"';
            line.append(line.isEmpty() ? "{" : ",").append('"').append(name).append("\":").append(text);
        });
        System.out.println(line.append('}'));
        System.out.flush();
    }
}
