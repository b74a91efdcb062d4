import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.metrics.*;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.*;

/**
 * A broker's receiver of clients' metrics (KIP-714): each push is a file of the folder that "push.folder" names, as the
 * protobuf that it was; its name has a number, whether it was the client's last, the client's id and the client's name.
 * It gets onto the broker's class path as an agent that does nothing.
 */
public class PushReceiver implements MetricsReporter, ClientTelemetry, ClientTelemetryReceiver {
    static final AtomicInteger NUMBERS = new AtomicInteger();

    public static void premain(String arguments) {
    }

    @Override
    public void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        ByteBuffer data = payload.data();
        byte[] bytes = new byte[data.remaining()];
        data.duplicate().get(bytes);
        String name = String.join(",", String.format("%05d", NUMBERS.getAndIncrement()), "" + payload.isTerminating(),
                payload.clientInstanceId().toString(), context.clientId());
        Path folder = Path.of(System.getProperty("push.folder")), writing = folder.resolve(name + ".part");
        try {
            Files.write(writing, bytes);
            Files.move(writing, folder.resolve(name), StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return this;
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }

    @Override
    public void configure(Map<String, ?> configs) {
    }
}
