import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Copies one topic to another by Kafka's own client, for ever and exactly once: BOOTSTRAP NAME, from NAME-in to NAME-out.
 * After an error another producer and another consumer go on, from what was committed.
 */
public final class CopyWithJava {
    private static final Duration A_MOMENT = Duration.ofMillis(100);

    public static void main(String[] arguments) {
        while (true) {
            try {
                copy(arguments[0], arguments[1]);
            } catch (KafkaException error) {
                System.err.println("starts again after " + error);
            }
        }
    }

    private static void copy(String bootstrap, String name) {
        try (var producer = new KafkaProducer<byte[], byte[]>(producing(bootstrap, name));
                var consumer = new KafkaConsumer<byte[], byte[]>(consuming(bootstrap, name))) {
            producer.initTransactions();
            consumer.subscribe(List.of(name + "-in"));
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(A_MOMENT);
                if (!records.isEmpty()) {
                    copy(records, producer, consumer, name);
                }
            }
        }
    }

    private static void copy(
            ConsumerRecords<byte[], byte[]> records,
            KafkaProducer<byte[], byte[]> producer,
            KafkaConsumer<byte[], byte[]> consumer,
            String name) {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<byte[], byte[]> one : records) {
            producer.send(new ProducerRecord<>(name + "-out", one.partition(), null, one.value()));
            ends.put(new TopicPartition(one.topic(), one.partition()), new OffsetAndMetadata(one.offset() + 1));
        }
        producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
        producer.commitTransaction();
    }

    private static Map<String, Object> producing(String bootstrap, String name) {
        return Map.of(
                "bootstrap.servers", bootstrap,
                "transactional.id", name,
                "key.serializer", ByteArraySerializer.class,
                "value.serializer", ByteArraySerializer.class,
                "max.block.ms", 30_000,
                "delivery.timeout.ms", 30_000,
                "request.timeout.ms", 10_000);
    }

    private static Map<String, Object> consuming(String bootstrap, String name) {
        return Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", name,
                "group.instance.id", name,
                "key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class,
                "enable.auto.commit", false,
                "auto.offset.reset", "earliest",
                "isolation.level", "read_committed",
                "max.poll.records", 10);
    }
}
