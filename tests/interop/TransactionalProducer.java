import java.io.*;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One transactional producer, configured by KEY=VALUE ... and run by lines on standard input: "begin", "write TOPIC
 * VALUE ..." (to partition 0), "offset GROUP TOPIC OFFSET" (of partition 0), "commit", "abort". Each line is answered
 * by one on standard output, "done" or "error CLASS"; the first of all comes after initTransactions().
 */
public class TransactionalProducer {
    static void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static void obey(KafkaProducer<byte[], byte[]> producer, String[] words) throws Exception {
        switch (words[0]) {
            case "begin" -> producer.beginTransaction();
            case "write" -> {
                for (String value : Arrays.asList(words).subList(2, words.length))
                    producer.send(new ProducerRecord<>(words[1], 0, null, value.getBytes()));
                producer.flush();
            }
            case "offset" -> producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(words[2], 0), new OffsetAndMetadata(Long.parseLong(words[3]))),
                    new ConsumerGroupMetadata(words[1]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        for (String word : arguments)
            properties.put(word.substring(0, word.indexOf('=')), word.substring(word.indexOf('=') + 1));
        var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        tell("done");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; )
            try {
                obey(producer, line.split(" "));
                tell("done");
            } catch (KafkaException e) {
                tell("error " + e.getClass().getSimpleName());
            }
        Runtime.getRuntime().halt(0); // whatever is open stays so, as of a process that was killed
    }
}
