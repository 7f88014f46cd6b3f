import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Does the tasks of secured_clients/programs.py by Kafka's own client. */
class SecuredClient {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) {
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }

    static Map<String, Object> answer(JsonNode task) {
        try {
            produce(task);
            return Map.of("values", consume(task));
        } catch (Exception failure) {
            return Map.of("refused", words(failure));
        }
    }

    static void produce(JsonNode task) throws Exception {
        Properties settings = settings(task, Map.of("linger.ms", "0", "max.block.ms", "60000"));
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < task.get("records").asInt(); number++) {
                producer.send(new ProducerRecord<>(task.get("topic").asText(), String.valueOf(number))).get();
                Thread.sleep(task.get("pause_ms").asLong());
            }
        }
    }

    static List<String> consume(JsonNode task) {
        String topic = task.get("topic").asText();
        Properties settings = settings(task, Map.of("group.id", topic, "auto.offset.reset", "earliest"));
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (values.size() < task.get("records").asInt()) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    values.add(record.value());
                }
            }
        }
        return values;
    }

    static Properties settings(JsonNode task, Map<String, String> others) {
        Properties settings = new Properties();
        task.get("properties").properties().forEach(one -> settings.put(one.getKey(), one.getValue().asText()));
        settings.putAll(others);
        return settings;
    }

    static String words(Throwable failure) {
        StringBuilder words = new StringBuilder();
        for (Throwable one = failure; one != null; one = one.getCause()) {
            words.append(one).append(' ');
        }
        return words.toString();
    }
}
