import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Clients of Apache Kafka that do what with_java.py asks for, one task a line: each connection is one client, whose
 * first line names its kind and its properties. A client ends with its connection.
 */
class HistoryClients {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Duration CLOSE = Duration.ofSeconds(10);

    interface Client extends AutoCloseable {
        Map<String, Object> answer(JsonNode task) throws Exception;

        @Override
        void close();
    }

    public static void main(String[] arguments) throws IOException {
        try (ServerSocket listening = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            System.out.println(listening.getLocalPort());
            while (true) {
                Socket connection = listening.accept();
                Thread thread = new Thread(() -> serve(connection));
                thread.setDaemon(true);
                thread.start();
            }
        }
    }

    static void serve(Socket connection) {
        try (connection;
                BufferedReader lines = new BufferedReader(new InputStreamReader(connection.getInputStream()));
                PrintStream answers = new PrintStream(connection.getOutputStream(), true);
                Client client = client(JSON.readTree(lines.readLine()))) {
            for (String line; (line = lines.readLine()) != null;) {
                answers.println(JSON.writeValueAsString(answer(client, JSON.readTree(line))));
            }
        } catch (Exception failure) {
            System.err.println(failure);
        }
    }

    static Client client(JsonNode said) {
        Properties properties = new Properties();
        said.get("properties").properties().forEach(one -> properties.put(one.getKey(), one.getValue().asText()));
        return said.get("kind").asText().equals("producer") ? new Producer(properties) : new Consumer(properties);
    }

    static Map<String, Object> answer(Client client, JsonNode task) {
        try {
            return client.answer(task);
        } catch (Exception failure) {
            return Map.of("failed", failure.getClass().getSimpleName(), "words", failure.toString());
        }
    }

    static class Producer implements Client {
        final KafkaProducer<String, String> producer;

        Producer(Properties properties) {
            producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
        }

        @Override
        public Map<String, Object> answer(JsonNode task) throws InterruptedException {
            switch (task.get("do").asText()) {
                case "init" -> producer.initTransactions();
                case "begin" -> producer.beginTransaction();
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                case "send" -> {
                    return Map.of("offsets", send(task.get("topic").asText(), task.get("records")));
                }
                default -> throw new IllegalArgumentException(task.toString());
            }
            return Map.of();
        }

        /** Returns [value, offset] of each record that was acknowledged. */
        List<List<Object>> send(String topic, JsonNode records) throws InterruptedException {
            Map<String, Future<RecordMetadata>> coming = new HashMap<>();
            for (JsonNode one : records) {
                String value = one.get(1).asText();
                coming.put(value, producer.send(new ProducerRecord<>(topic, one.get(0).asInt(), null, value)));
            }
            List<List<Object>> offsets = new ArrayList<>();
            for (Map.Entry<String, Future<RecordMetadata>> one : coming.entrySet()) {
                try {
                    offsets.add(List.of(one.getKey(), one.getValue().get().offset()));
                } catch (ExecutionException failure) {
                    System.err.println("not acknowledged: " + failure.getCause());
                }
            }
            return offsets;
        }

        @Override
        public void close() {
            producer.close(CLOSE);
        }
    }

    static class Consumer implements Client, ConsumerRebalanceListener {
        final KafkaConsumer<String, String> consumer;
        boolean isRebalanced;

        Consumer(Properties properties) {
            consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
        }

        @Override
        public Map<String, Object> answer(JsonNode task) {
            switch (task.get("do").asText()) {
                case "assign" -> {
                    List<TopicPartition> partitions = places(task.get("topic").asText(), task.get("partitions"));
                    consumer.assign(partitions);
                    partitions.forEach(one -> consumer.seek(one, 0));
                }
                case "subscribe" -> consumer.subscribe(List.of(task.get("topic").asText()), this);
                case "poll" -> {
                    return poll(Duration.ofMillis(task.get("ms").asLong()));
                }
                case "commit" -> consumer.commitSync(offsets(task.get("topic").asText(), task.get("offsets")));
                default -> throw new IllegalArgumentException(task.toString());
            }
            return Map.of();
        }

        /** Returns [partition, offset, value] of each record, and whether there was a rebalance before all of them. */
        Map<String, Object> poll(Duration timeout) {
            isRebalanced = false;
            List<List<Object>> records = new ArrayList<>();
            for (ConsumerRecord<String, String> one : consumer.poll(timeout)) {
                records.add(List.of(one.partition(), one.offset(), one.value()));
            }
            return Map.of("records", records, "is_rebalanced", isRebalanced);
        }

        static List<TopicPartition> places(String topic, JsonNode partitions) {
            List<TopicPartition> places = new ArrayList<>();
            partitions.forEach(one -> places.add(new TopicPartition(topic, one.asInt())));
            return places;
        }

        static Map<TopicPartition, OffsetAndMetadata> offsets(String topic, JsonNode offsets) {
            Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
            for (JsonNode one : offsets) {
                TopicPartition place = new TopicPartition(topic, one.get(0).asInt());
                found.put(place, new OffsetAndMetadata(one.get(1).asLong()));
            }
            return found;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            isRebalanced = true;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            isRebalanced = true;
        }

        @Override
        public void close() {
            consumer.close(CLOSE);
        }
    }
}
